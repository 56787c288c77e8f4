"""The sink of Iceberg commits once: twice in a row, in another process, from an old savepoint, beside others."""

from __future__ import annotations

import contextlib
import pickle
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table
from tests.connectors.iceberg.lake import Lake

from penstock.common import Row, RowKind
from penstock.connectors.iceberg.committer import STEP_KEPT_MS, CommitError, CommitName, Ledger
from penstock.connectors.iceberg.sink import IcebergSink, IcebergSinkBuilder
from penstock.testing.connectors import SinkHost

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
DAY_MS = 24 * 3_600_000


def builder(lake: Lake, name: str = "t") -> IcebergSinkBuilder:
    return IcebergSink.for_row(SCHEMA).table_loader(lake.loader(name)).create_table()


def host(run: str = "a", now: int = 0, **more: Any) -> SinkHost:
    made = SinkHost(run=run, **more)
    made.now = now
    return made


def prepared(sink: IcebergSink, values: Sequence[Any], context: SinkHost) -> list[Any]:
    """What a writer of a run of its own prepares for a checkpoint, as the checkpoint gives it back."""
    writer = sink.create_writer(context)
    writer.write_batch(list(values), None)
    found = pickle.loads(pickle.dumps(writer.prepare_commit()))
    writer.close()
    return list(found)


def commit(
    sink: IcebergSink, committables: Sequence[Any], context: SinkHost | None = None, again: bool = False
) -> None:
    committer = sink.create_committer(context or host())
    try:
        (committer.recommit if again else committer.commit)(committables)
    finally:
        committer.close()


def test_nothing_is_seen_before_the_commit_and_one_commit_is_one_snapshot(lake: Lake) -> None:
    """G9: what two subtasks have prepared is in one snapshot, with a file of each."""
    sink = builder(lake).build()
    staged = [
        *prepared(sink, [(1, "a"), (2, "b")], host("a")),
        *prepared(sink, [(3, "c")], host("b", subtask_index=1)),
    ]
    assert lake.rows("t") == []
    commit(sink, staged)
    assert lake.rows("t") == [(1, "a"), (2, "b"), (3, "c")]
    table = lake.table("t")
    assert len(table.snapshots()) == 1
    assert len(list(table.scan().plan_files())) == 2


def test_a_second_commit_changes_nothing(lake: Lake) -> None:
    """G9: by the same committer, by another one, and of restored state in part."""
    sink = builder(lake).build()
    writer = sink.create_writer(host())
    writer.write_batch([(1, "a")], None)
    first = writer.prepare_commit()
    commit(sink, first)
    commit(sink, first)
    writer.write_batch([(2, "b")], None)
    second = writer.prepare_commit()
    writer.close()
    commit(sink, [*first, *second], again=True)
    commit(sink, [*first, *second], again=True)
    assert lake.rows("t") == [(1, "a"), (2, "b")]
    assert len(lake.table("t").snapshots()) == 2


def test_a_job_that_begins_from_an_older_savepoint_commits_what_is_new(lake: Lake) -> None:
    """G9: the numbers of its checkpoints come again, but what it prepares has names of its own."""
    sink = builder(lake).build()
    old = prepared(sink, [(1, "old")], host("first"))
    commit(sink, old)
    commit(sink, prepared(sink, [(2, "main")], host("second")))
    # Another job begins from the savepoint that names `old`, and makes the second checkpoint once more.
    commit(sink, old, host("x", job_id="other"), again=True)
    commit(sink, prepared(sink, [(3, "new")], host("first", job_id="other")))
    assert lake.rows("t") == [(1, "old"), (2, "main"), (3, "new")]


def expire_after(lake: Lake, change: Callable[[Table], None]) -> None:
    """Change the table, and forget the snapshot that was there before."""
    with lake.loader("t").opened() as table:
        first = table.current_snapshot()
        assert first is not None
        change(table)
        table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()


def test_the_memory_outlives_the_snapshots(lake: Lake) -> None:
    """G9: the summaries and the files of expired snapshots are gone, and the ledger still knows."""
    sink = builder(lake).build()
    staged = prepared(sink, [(1, "a")], host())
    commit(sink, staged)
    expire_after(lake, lambda table: table.overwrite(pa.table({"id": [1], "text": ["compacted"]}, SCHEMA)))
    commit(sink, staged, again=True)
    assert lake.rows("t") == [(1, "compacted")]


def forget(lake: Lake) -> None:
    """Take away the ledger."""
    with lake.loader("t").opened() as table, table.transaction() as transaction:
        transaction.remove_properties("penstock.ledger.main")


def test_what_the_ledger_has_forgotten_is_found_in_the_snapshots(lake: Lake) -> None:
    """G9: by the summary of the snapshot that committed it, though another one has replaced its rows since."""
    sink = builder(lake).build()
    staged = prepared(sink, [(1, "a")], host())
    commit(sink, staged)
    with lake.loader("t").opened() as table:
        table.overwrite(pa.table({"id": [9], "text": ["other"]}, SCHEMA))
    forget(lake)
    commit(sink, staged, again=True)
    assert lake.rows("t") == [(9, "other")]


def test_files_outlive_the_snapshot_that_added_them(lake: Lake) -> None:
    """G9: that one has expired and the ledger has forgotten, but a later snapshot has the file still."""
    sink = builder(lake).build()
    staged = prepared(sink, [(1, "a")], host())
    commit(sink, staged)
    expire_after(lake, lambda table: table.append(pa.table({"id": [2], "text": ["other"]}, SCHEMA)))
    forget(lake)
    commit(sink, staged, again=True)
    assert lake.rows("t") == [(1, "a"), (2, "other")]


def test_files_that_are_gone_are_an_error_that_says_so(lake: Lake) -> None:
    sink = builder(lake).build()
    staged = prepared(sink, [(1, "a")], host())
    lake.table("t").io.delete(staged[0].files[0]["file_path"])
    with pytest.raises(CommitError, match="1 data files that a checkpoint or savepoint names are gone"):
        commit(sink, staged, again=True)


def test_changes_that_nobody_remembers_are_not_written_over_newer_rows(lake: Lake) -> None:
    sink = builder(lake).equality_field_columns("id").ledger_retention(30 * DAY_MS).build()
    staged = prepared(sink, [(1, "old")], host(now=0))
    with pytest.raises(CommitError, match="prepared 31 days ago"):
        commit(sink, staged, host(now=31 * DAY_MS), again=True)
    commit(sink, staged, host(now=29 * DAY_MS), again=True)
    assert lake.rows("t") == [(1, "old")]


def test_two_jobs_on_one_table_both_come_through(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """G9: the catalog refuses the commit that has not seen the other one; it is made again on top of that."""
    sink = builder(lake).build()
    mine, theirs = prepared(sink, [(1, "mine")], host()), prepared(sink, [(2, "theirs")], host(job_id="other"))
    meet(monkeypatch, lambda: commit(sink, theirs, host(job_id="other")))
    commit(sink, mine)
    assert lake.rows("t") == [(1, "mine"), (2, "theirs")]
    ledger = Ledger.of(lake.table("t").properties, "main")
    assert all(ledger.knows(one.name) for one in [*mine, *theirs])


def meet(monkeypatch: pytest.MonkeyPatch, other: Any) -> None:
    """Let something happen between the look of the next commit and the commit itself."""
    original, is_due = Table._do_commit, [True]

    def hooked(self: Table, *args: Any, **more: Any) -> None:
        if is_due.pop() if is_due else False:
            other()
        original(self, *args, **more)

    monkeypatch.setattr(Table, "_do_commit", hooked)


def test_a_committer_that_was_given_up_and_its_successor_commit_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G9: the second one finds that the branch has moved, looks again, and finds all names."""
    sink = builder(lake).build()
    staged = prepared(sink, [(1, "a")], host())
    meet(monkeypatch, lambda: commit(sink, staged, host("successor"), again=True))
    commit(sink, staged)
    assert lake.rows("t") == [(1, "a")]
    assert len(lake.table("t").snapshots()) == 1


@pytest.mark.parametrize("got_through", [True, False])
def test_an_answer_that_is_lost(lake: Lake, monkeypatch: pytest.MonkeyPatch, got_through: bool) -> None:
    """G9: whether the commit got through is in the table."""
    sink = builder(lake).build()
    staged = prepared(sink, [(1, "a")], host())
    original, is_due = Table._do_commit, [True]

    def lossy(self: Table, *args: Any, **more: Any) -> None:
        if not is_due:
            return original(self, *args, **more)
        is_due.clear()
        if got_through:
            original(self, *args, **more)
        raise CommitStateUnknownException("the server did not answer")

    monkeypatch.setattr(Table, "_do_commit", lossy)
    commit(sink, staged)
    assert lake.rows("t") == [(1, "a")]


def test_changes_by_key_are_computed_anew_when_another_commit_came_first(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G9: two writers by key, of whom each replaces a row of the same file."""
    sink = builder(lake).equality_field_columns("id").build()
    commit(sink, prepared(sink, [(1, "a"), (2, "a"), (3, "a")], host()))
    mine = prepared(sink, [(1, "mine")], host("b"))
    theirs = prepared(sink, [(2, "theirs"), Row.of_kind(RowKind.DELETE, 3, None)], host(job_id="other"))
    meet(monkeypatch, lambda: commit(sink, theirs, host(job_id="other")))
    commit(sink, mine)
    assert lake.rows("t") == [(1, "mine"), (2, "theirs")]
    files = {task.file.file_path for task in lake.table("t").scan().plan_files()}
    there = {f"file://{path}" for path in lake.folder.glob("warehouse/db/t/data/*.parquet")}
    old = {entry["file_path"] for entry in lake.table("t").inspect.all_files().to_pylist()}
    assert files <= there <= old  # the files of the refused attempt are gone


def test_a_commit_that_sqlite_refuses_is_made_later(lake: Lake) -> None:
    """G9: the connection that wanted to make it shows it, as long as another process reads."""
    impatient = Lake(lake.folder, more=(("uri", f"{lake.properties['uri']}?timeout=0.01"),))
    sink = builder(impatient).build()
    commit(sink, prepared(sink, [(1, "a")], host()))
    staged = prepared(sink, [(2, "b")], host("b"))
    committer = sink.create_committer(host("b"))
    with contextlib.closing(sqlite3.connect(lake.folder / "catalog.db")) as reader:
        reading = reader.execute("SELECT * FROM iceberg_tables UNION ALL SELECT * FROM iceberg_tables")
        reading.fetchone()
        for _ in range(2):
            with pytest.raises(Exception, match="database is locked"):
                committer.commit(staged)
        reading.close()
    assert lake.rows("t") == [(1, "a")]
    committer.commit(staged)
    committer.close()
    assert lake.rows("t") == [(1, "a"), (2, "b")]


def test_a_commit_that_is_always_refused_fails(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = builder(lake).build()
    staged = prepared(sink, [(1, "a")], host())

    def refused(self: Table, *args: Any, **more: Any) -> None:
        raise CommitFailedException("the branch has moved")

    monkeypatch.setattr(Table, "_do_commit", refused)
    monkeypatch.setattr("penstock.connectors.iceberg.committer.time.sleep", lambda _: None)
    with pytest.raises(CommitFailedException):
        commit(sink, staged)


def test_branches_have_ledgers_of_their_own(lake: Lake) -> None:
    main, side = builder(lake).build(), builder(lake).to_branch("side").build()
    commit(main, prepared(main, [(1, "main")], host()))
    commit(side, prepared(side, [(2, "side")], host("b")))
    assert lake.rows("t") == [(1, "main")]
    assert lake.rows("t", branch="side") == [(2, "side")]
    assert {"penstock.ledger.main", "penstock.ledger.side"} <= lake.table("t").properties.keys()


def name(run: str, number: int, is_step: bool = False) -> CommitName:
    return CommitName("job/op", run, number, 0, is_step)


def test_the_ledger_has_an_entry_a_run_and_forgets_old_ones() -> None:
    ledger = Ledger({})
    for number in range(1, 1_000):
        ledger = ledger.noted([name("a", number)], 0, DAY_MS)
    assert len(ledger) == 1
    assert ledger.knows(name("a", 500))
    assert not ledger.knows(name("a", 1_000))
    assert not ledger.knows(name("b", 1))
    for number in range(300):
        ledger = ledger.noted([name(f"run {number}", 1)], number * 3_600_000, DAY_MS)
    assert 256 <= len(ledger) < 260
    assert ledger.knows(name("run 299", 1))
    assert not ledger.knows(name("a", 1))
    assert Ledger.of({"penstock.ledger.main": ledger.text()}, "main").text() == ledger.text()


def test_the_ledger_forgets_epochs_soon() -> None:
    ledger = Ledger({})
    for number in range(100):
        ledger = ledger.noted([name(f"epoch {number}", 1, is_step=True)], number * 60_000, DAY_MS)
    assert len(ledger) == STEP_KEPT_MS // 60_000 + 1
    assert ledger.knows(name("epoch 99", 1))
