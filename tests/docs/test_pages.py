"""What the pages say of the project's files, folders, commands and options is so."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import typer

from coordinator_udf.settings.coordinator import FIELDS
from schemas.tables import TABLES
from schemas.views import VIEWS
from tests.conftest import ROOT
from tests.docs.pages import PAGES, anchors, commands, links, prose, spans, text_of

#: What a person types, and the typer command behind it.
COMMANDS = {
    "scripts/sql": "jobs/query_tables.py",
    "scripts/run": "jobs/run_demo.py",
    "scripts/offsets": "coordinator_udf/offsets_topic/cli.py",
}
PROGRAM = re.compile(r"(jobs|scripts)/\w+\.py")
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
        program = next((word for word in words if PROGRAM.fullmatch(word) or word in COMMANDS), None)
        if program is None:
            continue
        assert (ROOT / program).exists(), f"{program} is not there"
        known = options(COMMANDS.get(program, program))
        given = words[words.index(program) + 1 :]
        shown = [word.partition("=")[0] for word in given if word.startswith("--")]
        if program == "scripts/run":
            known |= options("jobs/coordinator_stream.py")
        assert [option for option in shown if option not in known] == [], f"{' '.join(words)}"


def test_options_of_the_live_job_that_its_page_names_exist() -> None:
    known = options("jobs/coordinator_stream.py") | options("jobs/replay_requests.py")
    for name in ("run-it-live.md", "what-is-promised.md", "replay-a-log.md"):
        named = {found for span in spans(ROOT / "docs" / name) for found in re.findall(r"^--[a-z-]+", span)}
        assert named <= known, f"{name} names {sorted(named - known)}"


def test_all_tables_and_views_are_told_of() -> None:
    told = set(spans(ROOT / "docs" / "ask-in-sql.md"))
    assert {*TABLES, *VIEWS} <= told


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
    assert drawn == rooms | tops
    assert all((ROOT / top).is_dir() for top in tops)


def test_the_readme_is_read_in_two_minutes() -> None:
    assert len(prose(ROOT / "README.md").split()) < 600


@cache
def options(program: str) -> frozenset[str]:
    """The options of a typer command."""
    command = typer.main.get_command(_app(program))
    found = [command, *getattr(command, "commands", {}).values()]
    return frozenset(
        name for each in found for param in each.params for name in [*param.opts, *param.secondary_opts]
    ) | {"--help"}


def _app(program: str) -> typer.Typer:
    module = import_module(program.removesuffix(".py").replace("/", "."))
    if isinstance(app := getattr(module, "app", None), typer.Typer):
        return app
    app = typer.Typer()
    app.command()(module.main)
    return app
