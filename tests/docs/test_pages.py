"""What the pages say of the project's files, folders, commands and options is so."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import msgspec
import pytest
import typer

from coordinator_udf.commands.app import COMMANDS as MUSTER
from coordinator_udf.commands.app import app_of, module_of
from coordinator_udf.gateway.security.settings import Acl, Quota, SecuritySettings
from coordinator_udf.settings.coordinator import FIELDS
from coordinator_udf.sql.shapes import SHAPES
from schemas.views import VIEWS
from tests.conftest import ROOT
from tests.docs.pages import PAGES, anchors, commands, links, programs, prose, spans, text_of
from tests.groups.client_side_scenarios import SCENARIOS

#: What a person types, and the typer command behind it.
COMMANDS = {
    "scripts/sql": "coordinator_udf.commands.sql",
    "scripts/run": "scripts.demo.__main__",
    "scripts/offsets": "coordinator_udf.commands.offsets",
    "scripts/topics": "coordinator_udf.log.kafka.cli",
    "scripts/users": "coordinator_udf.gateway.security.cli",
    "scripts/bench": "scripts.benchmarks.__main__",
    **{f"muster {name}": module_of(name) for name in MUSTER},
    "muster offsets": "coordinator_udf.commands.offsets",
}
#: Where the options stand that `muster` has before a command.
MUSTER_ITSELF = "coordinator_udf.commands.app"
PROGRAM = re.compile(r"(jobs|scripts)/[\w/]+\.py")
#: Where a path of a page may start.
ROOMS = (ROOT, ROOT / "coordinator_udf")

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@by_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{target} is not there"
        if anchor:
            assert anchor in anchors(file), f"{target}: {file.name} has {sorted(anchors(file))}"


@by_page
def test_files_that_are_named_are_there(page: Path) -> None:
    for span in spans(page):
        if re.fullmatch(
            r"(jobs|scripts|conf|docs|schemas|tests|coordinator_udf)/[\w./-]*|[\w/]+/\w+\.(py|md|toml)", span
        ):
            assert any((room / span).exists() for room in ROOMS), f"{span} is not there"


@by_page
def test_commands_have_the_options_that_are_shown(page: Path) -> None:
    for words in commands(page):
        if (found := program_in(words)) is None:
            continue
        module, given = found
        known = options(module)
        if module == "scripts.demo.__main__":
            known |= options("coordinator_udf.commands.live")
        shown = [word.partition("=")[0] for word in given if word.startswith("--")]
        assert [option for option in shown if option not in known] == [], f"{' '.join(words)}"


def program_in(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]] | None:
    """The module of a command of ours among the words of a command line, and what is given to it."""
    for at, word in enumerate(words):
        if (name := f"{word} {words[at + 1]}" if word == "muster" and at + 1 < len(words) else word) in COMMANDS:
            return COMMANDS[name], words[at + 1 :]
        if word == "muster" and at + 1 < len(words):
            if words[at + 1].startswith("-"):
                return MUSTER_ITSELF, words[at + 1 :]
            raise AssertionError(f"{' '.join(words)}: no such command")
        if PROGRAM.fullmatch(word):
            assert (ROOT / word).exists(), f"{word} is not there"
            return word.removesuffix(".py").replace("/", "."), words[at + 1 :]
    return None


@by_page
def test_python_that_is_shown_imports_what_is_there(page: Path) -> None:
    for program in programs(page):
        imports = [line for line in ast.parse(program).body if isinstance(line, ast.Import | ast.ImportFrom)]
        exec(compile(ast.Module([*imports], []), str(page), "exec"), {})


def test_options_of_the_live_job_that_its_page_names_exist() -> None:
    known = options("coordinator_udf.commands.live") | options("coordinator_udf.commands.replay")
    for name in ("run-it-live.md", "what-is-promised.md", "replay-a-log.md"):
        named = {found for span in spans(ROOT / "docs" / name) for found in re.findall(r"^--[a-z-]+", span)}
        assert named <= known, f"{name} names {sorted(named - known)}"


def test_all_tables_and_views_are_told_of() -> None:
    told = set(spans(ROOT / "docs" / "ask-in-sql.md"))
    assert {*SHAPES, *VIEWS} <= told


def test_settings_that_are_named_exist() -> None:
    known = set(FIELDS)
    for page in PAGES:
        named = {
            span
            for span in spans(page)
            if re.fullmatch(r"(group|offsets?|log)(\.[a-z]+)+\.(ms|bytes|minutes|size)", span)
        }
        assert named <= known, f"{page.name} names {sorted(named - known)}"


def test_the_house_is_drawn_as_it_stands() -> None:
    tree = text_of(ROOT / "README.md").partition("## The house")[2].split("```")[1]
    drawn = set(re.findall(r"([\w.]+)/", tree))
    rooms = {path.parent.name for path in (ROOT / "coordinator_udf").glob("*/__init__.py")}
    tops = {"schemas", "coordinator_udf", "jobs", "conf", "scripts", "tests", "docs", ".ci"}
    nested = {path.parent.name for path in (ROOT / "coordinator_udf").glob("*/*/__init__.py")}
    assert rooms | tops <= drawn <= rooms | tops | nested
    assert all((ROOT / top).is_dir() for top in tops)


def test_the_readme_is_read_in_two_minutes() -> None:
    assert len(prose(ROOT / "README.md").split()) < 600


@cache
def options(module: str) -> frozenset[str]:
    """The options of the typer command in a module."""
    command = typer.main.get_command(_app(module))
    found = [command, *getattr(command, "commands", {}).values()]
    return frozenset(
        name for each in found for param in each.params for name in [*param.opts, *param.secondary_opts]
    ) | {"--help"}


def _app(name: str) -> typer.Typer:
    module = import_module(name)
    if name == MUSTER_ITSELF:
        return app_of(None)
    if isinstance(app := getattr(module, "app", None), typer.Typer):
        return app
    app = typer.Typer()
    app.command()(module.main)
    return app


def test_the_tests_of_the_client_side_mode_are_there() -> None:
    table = text_of(ROOT / "CONFORMANCE.md").partition("## KIP-848's client-side mode")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", table))
    assert named - set(SCENARIOS) == set()
    assert set(SCENARIOS) - named == set()


def test_the_example_of_security_shows_every_setting() -> None:
    text = (ROOT / "conf" / "security.toml").read_text()
    fields = {field.encode_name for kind in (SecuritySettings, Acl, Quota) for field in msgspec.structs.fields(kind)}
    shown = set(re.findall(r"^(?:# )?([a-z_.]+) = ", text, re.MULTILINE))
    tables = set(re.findall(r"^(?:# )?\[+(\w+)\]+$", text, re.MULTILINE))
    below = {f"upstream.{name}" for name in shown}
    assert fields - shown - tables - below == set()
