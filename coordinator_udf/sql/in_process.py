"""The incident views computed in this process, by DuckDB, from the one text that Spark reads too.

Spark plans a view anew for each statement and takes seconds for those that stand on ten others, however few rows there
are; a report, and the first answer of a shell, shouldn't wait for that. The text is Spark's: sqlglot says it in
DuckDB's dialect, and what it doesn't know is done here. A test computes all of them with both and compares.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

import deltalake
import duckdb
import pyarrow as pa
import sqlglot
from duckdb.func import FunctionNullHandling
from pyspark.sql.pandas.types import to_arrow_schema
from sqlglot import exp
from sqlglot.errors import UnsupportedError

from coordinator_udf import stopping
from coordinator_udf.log.dataframe import request_log_table
from coordinator_udf.sql.embedded_protocol import read_embedded_protocol
from coordinator_udf.sql.shapes import SHAPES, files_alone, table_path
from schemas.coordinator_log import COORDINATOR_LOG_TABLE
from schemas.requests import REQUEST_LOG_TABLE
from schemas.views import READ_EMBEDDED_PROTOCOL, VIEWS

R = TypeVar("R")

_EMBEDDED: Final = "STRUCT(topics VARCHAR[], partitions MAP(VARCHAR, INTEGER[]), details VARCHAR, error VARCHAR)"
#: The tables whose rows are of one group each, and tell nothing of others. Of the offsets topic it counts which records
#: are there at all.
_OF_GROUPS: Final = frozenset({REQUEST_LOG_TABLE, "group_responses", "group_transitions", COORDINATOR_LOG_TABLE})
#: Spark's functions that DuckDB has under other names, or with other arguments.
_MACROS: Final = (
    "CREATE MACRO timestamp_millis(ms) AS make_timestamp(CAST(ms AS BIGINT) * 1000)",
    "CREATE MACRO get(items, place) AS items[place + 1]",
)
#: The same of patterns of times: micro- and milliseconds.
_FRACTIONS: Final = (("SSSSSS", "%f"), ("SSS", "%g"))
#: As many rows of a result are in memory at once.
_PIECE_ROWS: Final = 1_000
#: sqlglot says of some functions that it doesn't know whether DuckDB has them; the test tells.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


class ViewsInProcess:
    """The tables of one folder, and the incident views on them, in DuckDB.

    Views are computed when they are first asked for, from the tables as they are when this is made.

    Args:
        folder: where the Delta tables are, on this machine; without it all are empty.
        log: the embedded request log, if there is one: then request_log is what it holds and its history.
        group_ids: the groups that are asked about alone, so that less is to be computed: rows of others may be left
            out.

    Raises:
        LogError: the embedded log can't be read.
    """

    def __init__(self, folder: str | None, log: Path | None = None, group_ids: Collection[str] | None = None) -> None:
        self._duck = duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})
        # It is drawn on standard output, in the midst of what other programs read.
        self._duck.execute("SET enable_progress_bar = false")
        self._worker = ThreadPoolExecutor(1)
        # Times that have a zone are shown as Spark shows them here.
        self._duck.execute("SET TimeZone = 'UTC'")
        for macro in _MACROS:
            self._duck.execute(macro)
        self._duck.create_function(
            READ_EMBEDDED_PROTOCOL,
            _embedded,
            ["VARCHAR", "VARCHAR", "BLOB", "BLOB"],
            _EMBEDDED,
            null_handling=FunctionNullHandling.SPECIAL,
        )
        for name in SHAPES:
            self._register(
                name, None if folder is None else table_path(folder, name), group_ids if name in _OF_GROUPS else None
            )
        if log is not None:
            self._duck.register(REQUEST_LOG_TABLE, request_log_table(log))
        self._made: set[str] = set()

    def _register(self, name: str, path: str | None, group_ids: Collection[str] | None) -> None:
        files = None if path is None else files_alone(path)
        if files:
            listed = ", ".join(exp.Literal.string(file).sql(dialect="duckdb") for file in files)
            rows = f"SELECT * FROM read_parquet([{listed}], union_by_name => true)"
            if group_ids is not None:
                named = ", ".join(exp.Literal.string(each).sql(dialect="duckdb") for each in group_ids)
                rows += f" WHERE group_id IS NULL OR group_id IN ({named})"
            self._duck.execute(f"CREATE VIEW {name} AS {rows}")
        elif (
            path is not None
            and deltalake.DeltaTable.is_deltatable(path)
            and (table := deltalake.DeltaTable(path)).file_uris()
        ):
            self._duck.register(name, table.to_pyarrow_table())
        else:
            # An empty array, or Arrow's datasets, would import pandas, which takes longer than most statements.
            self._duck.register(name, pa.Table.from_batches([], to_arrow_schema(SHAPES[name], timezone="UTC")))

    def make(self, names: Iterable[str]) -> None:
        """Computes views, unless that is done.

        Args:
            names: each after those that it stands on, as `views_named` gives them.
        """
        new = [name for name in names if name not in self._made]
        # Those that follow are translated while one is computed.
        with ThreadPoolExecutor(1) as beside:
            for name, text in [(name, beside.submit(translate, VIEWS[name])) for name in new]:
                self._heard(partial(self._duck.execute, f'CREATE TABLE "{name}" AS {stopping.result_of(text)}'))
                self._made.add(name)

    def ask(self, statement: str) -> list[dict[str, Any]]:
        """Returns the rows of a statement in Spark's SQL on tables and computed views."""
        columns, rows = self.rows(sqlglot.parse_one(statement, read="spark"))
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def rows(self, parsed: exp.Expr) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Returns the columns of a parsed statement, and its rows, until the next one is asked.

        Rows are computed as they are taken: that this can't be done is mostly seen at the first, but not always.

        Raises:
            duckdb.Error: it names what isn't there, or can't be said in DuckDB's SQL.
        """
        result = self._heard(partial(self._duck.execute, _translated(parsed)))
        columns = [column[0] for column in result.description or ()]
        pieces = iter(lambda: self._heard(partial(result.fetchmany, _PIECE_ROWS)), [])
        return columns, chain(next(pieces, []), chain.from_iterable(pieces))

    def schema(self, name: str) -> pa.Schema:
        """Returns the columns of a table or computed view, with the types that they have in Spark."""
        if name in SHAPES:
            return to_arrow_schema(SHAPES[name], timezone="UTC")
        return self.arrow(name).schema

    def columns(self, name: str) -> list[str]:
        """Returns the names of the columns of a table or computed view."""
        return list(self._duck.table(name).columns)

    def arrow(self, name: str) -> pa.Table:
        """Returns a computed view, whole, with the types that it has in Spark."""
        found = self._duck.table(name).to_arrow_table()
        schema = pa.schema([field.with_type(_in_spark(field.type)) for field in found.schema])
        # DuckDB gives no chunks of a view without rows, of which PySpark can't make columns of times.
        return found.cast(schema) if found.num_rows else schema.empty_table()

    def close(self) -> None:
        """Frees what is in memory."""
        self._worker.shutdown()
        self._duck.close()

    def _heard(self, work: Callable[[], R]) -> R:
        """Has DuckDB work in another thread, and end it when a signal comes.

        Where DuckDB itself works with several threads, the one that asked it hears of no signal until it is done.
        """
        with stopping.deferred():
            # DuckDB forgets, as a statement begins, what it was told before.
            return stopping.result_of(self._worker.submit(work), self._duck.interrupt)


def _in_spark(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    # Sums of whole numbers have 128 bits.
    return pa.int64() if pa.types.is_decimal(kind) else kind


def _embedded(
    protocol_type: str | None, protocol: str | None, subscription: bytes | None, assignment: bytes | None
) -> dict[Any, Any]:
    return read_embedded_protocol(protocol_type, protocol, subscription, assignment)._asdict()


@cache
def translate(text: str) -> str:
    """Returns a view's statement in Spark's SQL in DuckDB's. All take a quarter of a second, so they are kept."""
    return _translated(sqlglot.parse_one(text, read="spark"))


def _translated(parsed: exp.Expr) -> str:
    """Returns a statement in DuckDB's SQL; what was parsed is used up, for each copy takes as long as parsing."""
    for rewrite in (_with_shape, _with_bad_json, _with_fraction, _with_nulls_ignored):
        parsed = parsed.transform(rewrite, copy=False)
    return parsed.sql(dialect="duckdb", copy=False)


def _with_nulls_ignored(node: exp.Expr) -> exp.Expr:
    """Rewrites the last value that is not null of a window: sqlglot would write the last one of all.

    Raises:
        UnsupportedError: of rows that are in no order DuckDB has the last one of all alone.
    """
    if not isinstance(node, exp.IgnoreNulls) or not isinstance(node.this, exp.Last):
        return node
    if not isinstance(node.parent, exp.Window):
        raise UnsupportedError(node.sql(dialect="spark"))
    return exp.IgnoreNulls(this=exp.LastValue(this=node.this.this))


def _with_fraction(node: exp.Expr) -> exp.Expr:
    """Translates fractions of a second in a time's pattern, which sqlglot leaves as they are.

    Raises:
        UnsupportedError: the pattern has other letters, or quotes, that DuckDB would write as they stand there.
    """
    if not isinstance(node, exp.TimeToStr) or not isinstance(node.args["format"], exp.Literal):
        return node
    told = node.args["format"].name
    for letters, code in _FRACTIONS:
        told = told.replace(letters, code)
    if re.search("[A-Za-z']", re.sub(r"%-?[A-Za-z](?:strict)?", "", told)):
        raise UnsupportedError(told)
    return exp.TimeToStr(this=node.this, format=exp.Literal.string(told))


def _with_shape(node: exp.Expr) -> exp.Expr:
    """Rewrites from_json: DuckDB reads JSON by an example of its shape, Spark by a table's columns."""
    if not isinstance(node, exp.FromJson):
        return node
    kind = exp.DataType.build(f"STRUCT<{node.expression.name}>", dialect="spark")
    told = exp.func("json_transform", node.this, exp.Literal.string(json.dumps(_shape(kind))))
    return _or_null(told, node.this)


def _with_bad_json(node: exp.Expr) -> exp.Expr:
    """Has what isn't JSON, as a client may have sent it, give null as in Spark; DuckDB refuses the statement."""
    if not isinstance(node, exp.JSONExtractScalar | exp.JSONExtract):
        return node
    # What was rewritten isn't looked into any more.
    node.set("this", node.this.transform(_with_bad_json, copy=False))
    return _or_null(node, node.this)


def _or_null(node: exp.Expr, text: exp.Expr) -> exp.Expr:
    """Returns what is read from a text, or null where that is no JSON."""
    if text.find(exp.AggFunc, exp.Window) is None:
        return exp.func("try", node)
    # DuckDB tries nothing that has an aggregate in it.
    return exp.Case().when(exp.func("json_valid", text.copy()), node)


def _shape(kind: exp.DataType) -> Any:
    if kind.is_type(exp.DataType.Type.STRUCT):
        return {field.name: _shape(field.args["kind"]) for field in kind.expressions}
    if kind.is_type(exp.DataType.Type.ARRAY):
        return [_shape(kind.expressions[0])]
    return kind.sql(dialect="duckdb")
