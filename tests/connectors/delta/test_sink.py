"""`DeltaSink`: what it does beside the rules that all sinks keep, which are for `test_conformance`."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.table import TableMerger

from penstock.base.errors import ConfigurationError, FormatError, OperationError, UnsupportedError
from penstock.codecs.column_data import ColumnData
from penstock.common import Row, RowKind, Types
from penstock.connectors.delta.commits import DeltaCommitter, PreparedFiles
from penstock.connectors.delta.table import CommitError, UnsupportedTableError
from penstock.datastream.connectors.delta import DeltaSink, DeltaSinkBuilder
from penstock.testing.connectors import SinkHost

NUMBERS = {"id": int, "name": str}


def sink_of(path: Path, *key: str) -> DeltaSink:
    builder = DeltaSink.for_row_data(path, NUMBERS)
    return builder.with_key_columns(*key).build() if key else builder.build()


def prepared(sink: DeltaSink, rows: Sequence[Any], host: SinkHost | None = None) -> list[PreparedFiles]:
    """What a writer hands out for a checkpoint; it dies afterwards."""
    writer = sink.create_writer(host or SinkHost())
    writer.write_batch(list(rows), None)
    found = writer.prepare_commit()
    writer.close()
    return pickle.loads(pickle.dumps(found))  # type: ignore[no-any-return]


def committer(sink: DeltaSink) -> DeltaCommitter:
    made = sink.create_committer(SinkHost())
    assert isinstance(made, DeltaCommitter)
    return made


def read_rows(path: Path) -> list[tuple[Any, ...]]:
    columns = DeltaTable(path).to_pyarrow_table().to_pydict()
    return sorted(zip(*columns.values(), strict=True), key=repr)


def get_table_version(path: Path) -> int:
    return DeltaTable(path).version()


@contextmanager
def has_read(one: DeltaCommitter) -> Iterator[None]:
    """A committer reads the table now, and looks again only after its commit was refused."""
    newest = one.newest
    stale = [newest()]

    def found() -> DeltaTable:
        return stale.pop() if stale else newest()

    with mock.patch.object(one, "newest", found):
        yield


def deleted(**values: Any) -> Row:
    row = Row(**values)
    row.set_row_kind(RowKind.DELETE)
    return row


def test_restored_commits_go_with_new_ones(tmp_path: Path) -> None:
    """Of what a failed attempt had prepared, only that is committed which it had not committed."""
    sink = sink_of(tmp_path)
    writer = sink.create_writer(SinkHost())
    writer.write_batch([(1, "a")], None)
    first = writer.prepare_commit()
    writer.write_batch([(2, "b")], None)
    second = writer.prepare_commit()
    committer(sink).commit(first)
    committer(sink).recommit(first + second)
    assert read_rows(tmp_path) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("key", [(), ("id",)])
def test_a_zombie_and_its_successor_commit_once(tmp_path: Path, key: tuple[str, ...]) -> None:
    """Both have read the table before either of them commits."""
    sink = sink_of(tmp_path, *key)
    found = prepared(sink, [(1, "a")])
    zombie, successor = committer(sink), committer(sink)
    with has_read(zombie):
        successor.recommit(found)
        zombie.commit(found)
    assert read_rows(tmp_path) == [(1, "a")]
    assert get_table_version(tmp_path) == 1


@pytest.mark.parametrize("key", [(), ("id",)])
def test_an_answer_that_is_lost_does_not_commit_twice(tmp_path: Path, key: tuple[str, ...]) -> None:
    """The version is there, and who made it hears of a failure."""
    sink = sink_of(tmp_path, *key)
    found = prepared(sink, [(1, "a")])
    owner, name = (TableMerger, "execute") if key else (DeltaTable, "create_write_transaction")
    original = getattr(owner, name)

    def lost(*args: Any, **more: Any) -> None:
        original(*args, **more)
        raise OSError("the connection was closed")

    with mock.patch.object(owner, name, lost), pytest.raises(OSError, match="closed"):
        committer(sink).commit(found)
    committer(sink).recommit(found)
    assert read_rows(tmp_path) == [(1, "a")]
    assert get_table_version(tmp_path) == 1


def test_numbers_outlive_the_files_of_the_log(tmp_path: Path) -> None:
    """The log is cut when its checkpoint holds what is in it."""
    sink = sink_of(tmp_path)
    found = prepared(sink, [(1, "a")])
    committer(sink).commit(found)
    DeltaTable(tmp_path).create_checkpoint()
    for file in (tmp_path / "_delta_log").glob("*.json"):
        file.unlink()
    committer(sink).recommit(found)
    assert read_rows(tmp_path) == [(1, "a")]
    assert get_table_version(tmp_path) == 1


def test_two_jobs_write_one_table(tmp_path: Path) -> None:
    """One adds rows, one merges, and somebody else adds rows: each is done on the newest version."""
    adding, merging = sink_of(tmp_path), sink_of(tmp_path, "id")
    added = prepared(adding, [(1, "added")], SinkHost(job_id="a"))
    merged = prepared(merging, [(2, "merged"), (3, "merged")], SinkHost(job_id="b"))
    first, second = committer(adding), committer(merging)
    with has_read(first), has_read(second):
        write_deltalake(tmp_path, pa.table({"id": [3], "name": ["other"]}), mode="append")
        first.commit(added)
        second.commit(merged)
    assert read_rows(tmp_path) == [(1, "added"), (2, "merged"), (3, "merged")]


def test_micro_batches_have_one_name(tmp_path: Path) -> None:
    """Epochs run in new tasks, whose names would fill the log; the number of the epoch tells them apart."""
    sink = sink_of(tmp_path)
    for epoch in (1, 2, 3):
        hosts = [SinkHost(i, attempt=epoch, run=f"{epoch}-{i}", owes_nothing=True) for i in range(2)]
        found = [one for host in hosts for one in prepared(sink, [(epoch, f"{host.subtask_index}")], host)]
        committer(sink).commit(found)
        committer(sink).commit(found)
    assert [row[0] for row in read_rows(tmp_path)] == [1, 1, 2, 2, 3, 3]
    names = {
        action["txn"]["appId"]
        for file in (tmp_path / "_delta_log").glob("*.json")
        for action in map(json.loads, file.read_text().splitlines())
        if "txn" in action
    }
    assert names == {"penstock/job/op"}


def test_a_file_that_vacuum_took_is_an_error(tmp_path: Path) -> None:
    """A version that names it would break the table; one that was committed before is not missed."""
    sink = sink_of(tmp_path)
    old, new = prepared(sink, [(1, "a")], SinkHost(run="1")), prepared(sink, [(2, "b")], SinkHost(run="2"))
    committer(sink).commit(old)
    for one in old + new:
        (tmp_path / one.files[0].path).unlink()
    committer(sink).recommit(old)
    with pytest.raises(CommitError, match=r"is gone.*VACUUM may have removed it"):
        committer(sink).recommit(old + new)


def test_a_writer_that_is_closed_removes_what_it_did_not_hand_out(tmp_path: Path) -> None:
    writer = sink_of(tmp_path).create_writer(SinkHost())
    writer.write_batch([(1, "a")], None)
    writer.close()
    assert list(tmp_path.glob("*.parquet")) == []


def test_partitions_types_and_statistics(tmp_path: Path) -> None:
    """One file a partition; the log knows its rows, and its least and greatest values."""
    columns = {
        "day": pa.date32(),
        "at": pa.timestamp("ms", "UTC"),
        "k": str,
        "price": pa.decimal128(10, 2),
        "tags": pa.list_(pa.string()),
        "long": str,
    }
    sink = DeltaSink.for_row_data(tmp_path, columns).with_partition_columns("day", "at", "k").build()
    day, at = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 1, 2, 3, 4000, datetime.UTC)
    rows = [
        (day, at, "a/b:c %d", decimal.Decimal("1.50"), ["x", None], "z" * 40),
        (day, at, "a/b:c %d", decimal.Decimal("2.50"), [], "y"),
        (None, None, None, None, None, None),
    ]
    committer(sink).commit(prepared(sink, rows))
    assert read_rows(tmp_path) == sorted(rows, key=repr)
    actions = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True)).to_pylist()
    assert len(actions) == 2
    (of_day,) = [one for one in actions if one["partition.day"] == day]
    assert (of_day["num_records"], of_day["min.long"], of_day["null_count.price"]) == (2, "y", 0)
    assert of_day["max.long"] > "z" * 40
    found = DeltaTable(tmp_path).to_pyarrow_dataset(file_pruning_predicate=[("k", "=", "a/b:c %d")]).to_table()
    assert found.num_rows == 2


def test_files_end_when_they_are_large(tmp_path: Path) -> None:
    sink = DeltaSink.for_row_data(tmp_path, NUMBERS).with_target_file_size(1_000).build()
    writer = sink.create_writer(SinkHost())
    for start in range(0, 1_000, 100):
        columns = pa.record_batch(
            {"name": [f"n{n}" for n in range(start, start + 100)], "id": range(start, start + 100)}
        )
        writer.write_columns(ColumnData(columns), None)
    (found,) = writer.prepare_commit()
    assert len(found.files) == 10
    committer(sink).commit([found])
    assert [row[0] for row in sorted(read_rows(tmp_path))] == list(range(1_000))


def test_small_files_are_put_together(tmp_path: Path) -> None:
    """No row changes by that, and what a savepoint names is not in the table yet."""
    sink = DeltaSink.for_row_data(tmp_path, NUMBERS).with_compaction(3).build()
    kept = prepared(sink, [(9, "savepoint")], SinkHost(run="savepoint"))
    for number in range(3):
        committer(sink).commit(prepared(sink, [(number, "n")], SinkHost(run=f"{number}")))
    assert len(DeltaTable(tmp_path).file_uris()) == 1
    committer(sink).recommit(kept)
    assert [row[0] for row in read_rows(tmp_path)] == [0, 1, 2, 9]


def test_the_last_change_of_a_key_wins(tmp_path: Path) -> None:
    """Within a checkpoint, and over checkpoints."""
    sink = sink_of(tmp_path, "id")
    writer = sink.create_writer(SinkHost())
    writer.write_batch([Row(id=n, name="first") for n in range(4)], None)
    writer.write_batch([Row(id=1, name="second"), deleted(id=2, name=None), Row(id=3, name="gone soon")], None)
    writer.write_batch([deleted(id=3, name="gone soon"), Row(id=2, name="back")], None)
    one = committer(sink)
    one.commit(writer.prepare_commit())
    assert read_rows(tmp_path) == [(0, "first"), (1, "second"), (2, "back")]
    columns = pa.record_batch({"id": [0, 1, 5], "name": ["third", None, "new"]})
    writer.write_changes(ColumnData(columns), bytes([2, 3, 0]), None)
    one.commit(writer.prepare_commit())
    assert read_rows(tmp_path) == [(0, "third"), (2, "back"), (5, "new")]
    assert not list(tmp_path.glob("changes-*")), "files of changes go when they are merged"


def test_a_merge_that_changes_nothing_is_noted(tmp_path: Path) -> None:
    """Otherwise the deletion would be repeated when there is such a row."""
    sink = sink_of(tmp_path, "id")
    nothing = prepared(sink, [deleted(id=1, name=None)], SinkHost(run="1"))
    committer(sink).commit(nothing)
    committer(sink).commit(prepared(sink, [(1, "there")], SinkHost(run="2")))
    committer(sink).recommit(nothing)
    assert read_rows(tmp_path) == [(1, "there")]


def test_keys_of_several_columns_with_strange_names(tmp_path: Path) -> None:
    columns = {"the id": int, 'say "k"': str, "V": float}
    sink = DeltaSink.for_row_data(tmp_path, columns).with_key_columns("the id", 'say "k"').build()
    committer(sink).commit(prepared(sink, [(1, "a", 1.0), (1, "b", 2.0)], SinkHost(run="1")))
    committer(sink).commit(prepared(sink, [(1, "b", 3.0)], SinkHost(run="2")))
    assert read_rows(tmp_path) == [(1, "a", 1.0), (1, "b", 3.0)]


def test_a_key_that_is_null_is_an_error(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, "id")
    with pytest.raises(OperationError, match="key column 'id' is NULL"):
        prepared(sink, [(None, "a")])


def test_changes_need_a_key(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="with_key_columns"):
        prepared(sink_of(tmp_path), [deleted(id=1, name="a")])


def test_columns_that_the_table_lacks(tmp_path: Path) -> None:
    """They are an error that names them, or are added."""
    committer(sink_of(tmp_path)).commit(prepared(sink_of(tmp_path), [(1, "a")], SinkHost(run="1")))
    wider = DeltaSink.for_row_data(tmp_path, {"id": int, "more": float, "other": str})
    with pytest.raises(ConfigurationError, match=r"has no columns more, other: .*mergeSchema"):
        prepared(wider.build(), [])
    sink = wider.with_merge_schema(True).build()
    committer(sink).commit(prepared(sink, [(2, 0.5, "o")], SinkHost(run="2")))
    assert read_rows(tmp_path) == [(1, "a", None, None), (2, None, 0.5, "o")]


def test_a_table_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"id": [1], "name": ["a"], "day": ["d"]}), partition_by=["day"])

    def fails(builder: DeltaSinkBuilder, kind: type[Exception], text: str) -> None:
        with pytest.raises(kind, match=text):
            builder.build().create_writer(SinkHost())

    everything = {"id": int, "name": str, "day": str}
    fails(DeltaSink.for_row_data(tmp_path, {**everything, "id": str}), ConfigurationError, "column 'id' is int64 in")
    fails(DeltaSink.for_row_data(tmp_path, NUMBERS), ConfigurationError, "partitioned by day, which is not among")
    fails(
        DeltaSink.for_row_data(tmp_path, everything).with_partition_columns("name"),
        ConfigurationError,
        "is partitioned by day, and the sink by name",
    )
    DeltaTable(tmp_path).alter.add_constraint({"positive": "id > 0"})
    fails(DeltaSink.for_row_data(tmp_path, everything), UnsupportedTableError, "delta.constraints.positive")


def test_records_with_other_names_are_refused(tmp_path: Path) -> None:
    """They would be NULLs in the table."""
    for record in (Row(id=1, nome="a"), {"id": 1, "nome": "a"}, Row(id=1)):
        with pytest.raises(FormatError, match=r"fields id.* whose sink has the columns id, name"):
            prepared(sink_of(tmp_path), [record])
    committer(sink_of(tmp_path)).commit(prepared(sink_of(tmp_path), [{"id": 1}, {"name": "b"}]))
    assert read_rows(tmp_path) == [(1, None), (None, "b")]


def test_mistakes_are_named_when_the_sink_is_built(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="key column 'no' is none of the columns id, name"):
        sink_of(tmp_path, "no")
    with pytest.raises(ConfigurationError, match="partition column 'no'"):
        DeltaSink.for_row_data(tmp_path, NUMBERS).with_partition_columns("no").build()
    with pytest.raises(UnsupportedError, match="column 't' has the type time64"):
        DeltaSink.for_row_data(tmp_path, {"t": pa.time64("us")})
    with pytest.raises(ConfigurationError, match=r"declare the output type .* as Types.ROW_NAMED"):
        DeltaSink.for_row_data(tmp_path).build().for_type(Types.STRING())
    with (
        pytest.raises(ConfigurationError, match=r'pip install "penstock-streams\[delta\]"'),
        mock.patch.dict("sys.modules", {"deltalake": None}),
    ):
        DeltaSink.for_row_data(tmp_path, NUMBERS)


@pytest.mark.parametrize("record", [(7.9, "a"), {"id": 7.9, "name": "a"}, Row(id=decimal.Decimal("7.9"), name="a")])
def test_number_with_a_fraction_fails_in_a_column_of_whole_numbers(tmp_path: Path, record: Any) -> None:
    """K4: it was cut to 7."""
    with pytest.raises(TypeError, match=r"column 'id' of int64: .*7\.9.* is not a whole number"):
        prepared(sink_of(tmp_path), [record])
    committer(sink_of(tmp_path)).commit(prepared(sink_of(tmp_path), [(7.0, "a")]))
    assert read_rows(tmp_path) == [(7, "a")]
