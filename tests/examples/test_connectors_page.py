"""The source and the sink of docs/connectors.md keep the rules, and the mistake that the page describes is found."""

import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.examples.pages import blocks_of

from penstock.testing.connectors import (
    SINK_CASES,
    SOURCE_CASES,
    ConformanceError,
    SinkUnderTest,
    SourceUnderTest,
    check_sink,
    check_source,
)

BLOCKS = blocks_of("docs/connectors.md")
ROWS = [(n, f"word {n}") for n in range(0, 60, 2)]
PAGE = (Path(__file__).parents[2] / "docs" / "connectors.md").read_text()


def module_of(name: str, program: str) -> dict[str, Any]:
    """The classes of the page, in a module, so that they can be pickled."""
    module = type(sys)(name)
    sys.modules[name] = module
    exec(program, module.__dict__)
    return module.__dict__


@pytest.fixture(scope="module")
def connectors() -> dict[str, Any]:
    return module_of("connectors_page", BLOCKS[0] + BLOCKS[1])


@pytest.fixture
def few(tmp_path: Path) -> str:
    path = str(tmp_path / "few.db")
    with sqlite3.connect(path) as table:
        table.execute("create table words (id integer primary key, text text)")
        table.executemany("insert into words values (?, ?)", ROWS)
    return path


@pytest.mark.parametrize("case", SOURCE_CASES)
def test_the_source(connectors: dict[str, Any], few: str, case: str) -> None:
    check_source(lambda: SourceUnderTest(connectors["TableSource"](few, ids_per_split=20), ROWS), case, places=8)


@pytest.mark.parametrize("case", SINK_CASES)
def test_the_sink(connectors: dict[str, Any], tmp_path: Path, case: str) -> None:
    path = str(tmp_path / "seen.db")

    def prepare() -> SinkUnderTest:
        with sqlite3.connect(path) as table:
            table.executescript("drop table if exists words; drop table if exists commits")
            table.execute("create table words (id integer, text text)")
            table.execute("create table commits (name text primary key)")
        return SinkUnderTest(connectors["TableSink"](path), ROWS, read)

    def read() -> list[Any]:
        with sqlite3.connect(path) as table:
            return table.execute("select id, text from words").fetchall()

    check_sink(prepare, case, places=4)


def test_the_page_tells_what_there_is() -> None:
    for name in (*SOURCE_CASES, *SINK_CASES):
        assert f"`{name}`" in PAGE, name


def test_the_mistake_of_the_page_is_found(few: str) -> None:
    right = "        return list(self.splits)\n\n    def close"
    wrong = "        return [replace(split, position=split.position - 1) for split in self.splits]\n\n    def close"
    assert right in BLOCKS[0]
    source = module_of("connectors_page_wrong", BLOCKS[0].replace(right, wrong))["TableSource"](few, ids_per_split=20)
    with pytest.raises(ConformanceError) as caught:
        check_source(lambda: SourceUnderTest(source, ROWS), "restart")
    for line in str(caught.value).splitlines():
        assert line in PAGE
