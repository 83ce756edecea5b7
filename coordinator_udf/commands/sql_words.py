"""What of the words of ``muster sql`` doesn't go together."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from typing import Final

import typer

from coordinator_udf.commands.job import options_given
from coordinator_udf.sql.endpoint import Address
from coordinator_udf.user_errors import InputError

STATEMENTS: Final = "STATEMENTS"
#: What says how tables are to be asked.
_OF_QUESTIONS: Final = ("--file", "--rows", "--format", "--spark", "--vertical", "--log", "--kafka-config")
_OF_DDL: Final = ("--ddl", "--install", "--spark-conf")
#: What is left of the others where one of these is given, and what it does.
_ALONE: Final = {
    "--serve": ((STATEMENTS, *_OF_QUESTIONS, *_OF_DDL), "it offers tables to notebooks, and asks nothing"),
    "--ddl": (_OF_QUESTIONS, "it makes the tables those of a catalog, and asks nothing"),
    "--file": ((STATEMENTS,), "it is what has the statements"),
}
#: One or more names with points between them; those with other letters between backticks.
_SCHEMA: Final = re.compile(r"(?:\w+|`[^`]+`)(?:\.(?:\w+|`[^`]+`))*")


def words_given(context: typer.Context) -> frozenset[str]:
    """Returns the options that are on the command line, and `STATEMENTS` if there are any."""
    return frozenset(word if word.startswith("-") else STATEMENTS for word in options_given(context))


def check_words(given: AbstractSet[str], statement: str | None, serve: str | None, *, is_table: bool) -> None:
    """Looks whether what is given makes sense together.

    Args:
        given: the options that are on the command line, and `STATEMENTS`.
        statement: the statements; with --ddl the schema.
        serve: where --serve shall listen.
        is_table: results are written as tables.

    Raises:
        InputError: one word says what another one doesn't let be.
    """
    for option, (others, why) in _ALONE.items():
        for other in others if option in given else ():
            if other in given:
                raise InputError(f"{option} doesn't go with {other}: {why}; give one of them")
    if "--ddl" in given and statement is not None and not _SCHEMA.fullmatch(statement):
        raise InputError(
            f"--ddl is followed by {statement!r}, expected CATALOG.SCHEMA, such as main.groups, or nothing"
        )
    if "--install" in given and ("--ddl" not in given or statement is None):
        raise InputError("--install needs --ddl CATALOG.SCHEMA, where tables and views are made")
    if "--install" in given and "--spark-conf" not in given:
        raise InputError(
            "--install needs --spark-conf FILE; the file says where the metastore is, such as with a line "
            "spark.hadoop.hive.metastore.uris thrift://HOST:9083 (docs/ask-in-sql.md)"
        )
    if "--spark-conf" in given and "--install" not in given:
        raise InputError("--spark-conf is for --install alone; what is asked needs no settings of Spark")
    if "--kafka-config" in given and "--log" not in given:
        raise InputError("--kafka-config is for a --log that is a topic")
    if "--vertical" in given and not is_table:
        raise InputError("--vertical is for --format table; csv and json have a line a row")
    if serve is not None:
        Address.parse(serve)
