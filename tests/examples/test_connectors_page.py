"""The source and the sink of docs/connectors.md keep the rules that the page states."""

import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.connectors.harness import SinkHost, read
from tests.examples.pages import blocks_of

BLOCKS = blocks_of("docs/connectors.md")


@pytest.fixture(scope="module")
def connectors() -> dict[str, Any]:
    """The classes of the page, in a module, so that they can be pickled."""
    module = type(sys)("connectors_page")
    sys.modules["connectors_page"] = module
    exec(BLOCKS[0] + BLOCKS[1], module.__dict__)
    return module.__dict__


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_source_survives_restarts_anywhere(connectors: dict[str, Any], tmp_path: Path, parallelism: int) -> None:
    """G8: after every batch and every split."""
    path = str(tmp_path / "from.db")
    with sqlite3.connect(path) as table:
        table.execute("create table words (id integer primary key, text text)")
        table.executemany("insert into words values (?, ?)", [(n, str(n)) for n in range(0, 90, 3)])
    source = connectors["TableSource"](path, ids_per_split=20)
    cluster = read(source, batch_size=4, parallelism=parallelism, hostile=True)
    assert sorted(cluster.all_values) == [(n, str(n)) for n in range(0, 90, 3)]


def test_the_sink_commits_once_what_is_committed_twice(connectors: dict[str, Any], tmp_path: Path) -> None:
    """G9: and what another instance had prepared."""
    path = str(tmp_path / "to.db")
    with sqlite3.connect(path) as table:
        table.execute("create table words (id integer, text text)")
        table.execute("create table commits (name text primary key)")
    sink = connectors["TableSink"](path)
    writer = sink.create_writer(SinkHost())
    writer.write_batch([(1, "a"), (2, "b")], None)
    prepared = writer.prepare_commit()
    for _ in range(2):
        committer = sink.create_committer(SinkHost(attempt=1))
        committer.commit(prepared)
        committer.close()
    with sqlite3.connect(path) as table:
        assert table.execute("select * from words").fetchall() == [(1, "a"), (2, "b")]
