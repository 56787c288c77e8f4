"""What the sink of Iceberg writes: tables that it makes, partitions, changes by key, columns that are added."""

from __future__ import annotations

import datetime
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from tests.connectors.iceberg.lake import Lake
from tests.connectors.iceberg.test_exactly_once import SCHEMA, builder, commit, host, prepared

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.common import Row, RowKind
from penstock.connectors.iceberg.committer import CommitError
from penstock.connectors.iceberg.sink import IcebergSink
from penstock.connectors.iceberg.tables import partition_transform
from penstock.runtime.connector import RecordError


def written(sink: IcebergSink, values: list[Any], run: str = "a") -> None:
    commit(sink, prepared(sink, values, host(run)))


def paths(lake: Lake, name: str = "t") -> list[str]:
    return [task.file.file_path for task in lake.table(name).scan().plan_files()]


def test_rows_with_names_dicts_tuples_and_columns(lake: Lake) -> None:
    sink = builder(lake).build()
    written(sink, [Row(text="a", id=1), {"id": 2}, (3, "c"), Row(4, "d"), [5, None]])
    assert lake.rows("t") == [(1, "a"), (2, None), (3, "c"), (4, "d"), (5, None)]


@pytest.mark.parametrize(
    ("value", "says"),
    [((1,), "2 columns, the record 1 fields"), ({"id": 1, "no": 2}, "has no column 'no'")],
)
def test_records_that_do_not_fit_are_named(lake: Lake, value: Any, says: str) -> None:
    with pytest.raises(RecordError) as found:
        written(builder(lake).build(), [value])
    assert says in str(found.value.__cause__)


def test_values_of_another_type_name_the_column(lake: Lake) -> None:
    with pytest.raises(UnsupportedError, match="column 'id' is int64"):
        written(builder(lake).build(), [("one", "a")])


def test_one_file_a_partition_and_checkpoint(lake: Lake) -> None:
    """Batches of a checkpoint share files; partitions come from transforms."""
    schema = pa.schema([("at", pa.timestamp("us")), ("id", pa.int64())])
    sink = IcebergSink.for_row(schema).table_loader(lake.loader("t")).create_table("day(at)", "bucket(4, id)").build()
    writer = sink.create_writer(host())
    for batch in range(10):
        writer.write_batch([(datetime.datetime(2024, 1, 1 + day), 7) for day in (0, 1)] + [(None, batch % 1)], None)
    commit(sink, writer.prepare_commit())
    writer.close()
    assert len(paths(lake)) == 3
    assert len(lake.rows("t")) == 30
    table = lake.table("t")
    assert [str(field.transform) for field in table.spec().fields] == ["day", "bucket[4]"]
    assert len(list(table.scan(row_filter="at < '2024-01-02T00:00:00'").plan_files())) == 1


def test_a_file_is_written_ahead_of_the_checkpoint_when_there_is_enough(lake: Lake) -> None:
    sink = builder(lake).target_file_size(1_000).build()
    writer = sink.create_writer(host())
    for number in range(4):
        writer.write_batch([(number, "x" * 600)] * 2, None)
    staged = writer.prepare_commit()
    writer.close()
    commit(sink, staged)
    assert len(paths(lake)) == 4
    assert len(lake.rows("t")) == 8


def test_a_writer_that_is_closed_removes_what_it_had_not_prepared(lake: Lake) -> None:
    sink = builder(lake).target_file_size(1).build()
    writer = sink.create_writer(host())
    writer.write_batch([(1, "a")], None)
    assert len(list(lake.folder.glob("warehouse/db/t/data/*"))) == 1
    writer.close()
    assert not list(lake.folder.glob("warehouse/db/t/data/*"))


def test_the_last_change_of_a_key_counts(lake: Lake) -> None:
    sink = builder(lake).equality_field_columns("id").upsert(True).build()
    written(sink, [(1, "a"), (2, "a"), (3, "a"), (1, "b")], "a")
    before = paths(lake)
    delete, gone = Row.of_kind(RowKind.DELETE, 2, None), Row.of_kind(RowKind.DELETE, 99, None)
    moved = [Row.of_kind(RowKind.UPDATE_BEFORE, 3, "a"), Row.of_kind(RowKind.UPDATE_AFTER, 4, "a")]
    written(sink, [delete, (5, "a"), Row.of_kind(RowKind.DELETE, 5, "a"), gone, *moved], "b")
    assert lake.rows("t") == [(1, "b"), (4, "a")]
    assert not set(before) & set(paths(lake))
    assert len(lake.table("t").snapshots()) == 2


def test_files_without_the_keys_stay(lake: Lake) -> None:
    """Bounds of columns and partitions keep files out, and of the others the keys are read."""
    appending, changing = builder(lake).build(), builder(lake).equality_field_columns("id").build()
    written(appending, [(number, "a") for number in range(0, 100, 2)], "a")
    written(appending, [(number, "b") for number in range(100, 200)], "b")
    before = set(paths(lake))
    written(changing, [(7, "new"), (1_000, "new")], "c")  # 7 is within the bounds of the first file, and not in it
    assert before < set(paths(lake))
    written(changing, [(number, "c") for number in range(150, 1_000)], "d")  # more keys than are asked for by name
    assert len(before & set(paths(lake))) == 1
    assert len(lake.rows("t")) == 50 + 50 + 1 + 850 + 1


def test_changes_of_two_checkpoints_in_one_commit(lake: Lake) -> None:
    sink = builder(lake).equality_field_columns("id").build()
    writer = sink.create_writer(host())
    writer.write_batch([(1, "first"), (2, "first")], None)
    first = writer.prepare_commit()
    writer.write_batch([(1, "second"), Row.of_kind(RowKind.DELETE, 2, None)], None)
    commit(sink, [*first, *writer.prepare_commit()])
    writer.close()
    assert lake.rows("t") == [(1, "second")]


def test_keys_of_several_columns(lake: Lake) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.list_(pa.int64()))])
    made = IcebergSink.for_row(schema).table_loader(lake.loader("t")).create_table("b")
    sink = made.equality_field_columns("a", "b").build()
    written(sink, [(1, "x", [1]), (1, "y", [1]), (2, "x", None)], "a")
    written(sink, [(1, "x", [2, 3]), Row.of_kind(RowKind.DELETE, 2, "x", None)], "b")
    assert lake.rows("t") == [(1, "x", [2, 3]), (1, "y", [1])]


def test_rows_that_are_only_added_must_be_inserts(lake: Lake) -> None:
    with pytest.raises(RecordError) as found:
        written(builder(lake).build(), [Row.of_kind(RowKind.DELETE, 1, "a")])
    assert "equality_field_columns" in str(found.value.__cause__)


def test_a_batch_replaces_the_partitions_that_it_writes(lake: Lake) -> None:
    made = IcebergSink.for_row(SCHEMA).table_loader(lake.loader("t")).create_table("text")
    written(made.build(), [(1, "a"), (2, "b"), (3, None)], "a")
    replacing = made.overwrite(True).build()
    staged = prepared(replacing, [(9, "a"), (8, None)], host("b", job_id="batch"))
    commit(replacing, staged)
    commit(replacing, staged, again=True)
    assert lake.rows("t") == [(2, "b"), (8, None), (9, "a")]
    with pytest.raises(CommitError, match="would remove what the job itself has written"):
        commit(replacing, prepared(replacing, [(7, "a")], host("c", job_id="batch")))


def test_a_batch_replaces_a_table_without_partitions(lake: Lake) -> None:
    sink = builder(lake).overwrite(True).build()
    commit(sink, prepared(sink, [(1, "a")], host(job_id="one")))
    commit(sink, prepared(sink, [(2, "b")], host(job_id="two")))
    assert lake.rows("t") == [(2, "b")]


def test_new_columns_are_an_error_that_names_them_or_are_added(lake: Lake) -> None:
    written(builder(lake).build(), [(1, "a")])
    wider = SCHEMA.append(pa.field("more", pa.float64())).append(pa.field("when", pa.date32()))
    loader = lake.loader("t")
    with pytest.raises(ConfigurationError, match="has no column 'more', 'when'"):
        IcebergSink.for_row(wider).table_loader(loader).build().create_writer(host())
    sink = IcebergSink.for_row(wider).table_loader(loader).schema_evolution(True).build()
    written(sink, [(2, "b", 1.5, datetime.date(2024, 1, 1))], "b")
    assert lake.rows("t") == [(1, "a", None, None), (2, "b", 1.5, datetime.date(2024, 1, 1))]


@pytest.mark.parametrize(("refusals", "comes_through"), [(9, True), (10, False)])
def test_columns_are_added_again_when_another_commit_came_first(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, refusals: int, comes_through: bool
) -> None:
    """Up to ten times; then it is the catalog's error."""
    written(builder(lake).build(), [(1, "a")])
    wider = SCHEMA.append(pa.field("more", pa.float64()))
    sink = IcebergSink.for_row(wider).table_loader(lake.loader("t")).schema_evolution(True).build()
    original, left = Table._do_commit, [CommitFailedException("the table has changed") for _ in range(refusals)]

    def hooked(self: Table, *args: Any, **more: Any) -> None:
        if left:
            raise left.pop()
        original(self, *args, **more)

    monkeypatch.setattr(Table, "_do_commit", hooked)
    with nullcontext() if comes_through else pytest.raises(CommitFailedException, match="the table has changed"):
        sink.create_writer(host()).close()
    assert left == []
    assert lake.table("t").schema().column_names == ["id", "text"] + ["more"] * comes_through


def test_columns_whose_values_the_table_cannot_hold(lake: Lake) -> None:
    written(builder(lake).build(), [(1, "a")])
    other = pa.schema([("id", pa.string()), ("text", pa.string())])
    with pytest.raises(ConfigurationError, match=r"column 'id' of table lake\.db\.t is int64, but declared as string"):
        IcebergSink.for_row(other).table_loader(lake.loader("t")).build().create_writer(host())


def test_a_file_of_an_earlier_partitioning_is_written_again(lake: Lake) -> None:
    sink = builder(lake).build()
    staged = prepared(sink, [(1, "a"), (2, "b")], host())
    with lake.loader("t").opened() as table, table.update_spec() as spec:
        spec.add_identity("text")
    commit(sink, staged)
    assert lake.rows("t") == [(1, "a"), (2, "b")]
    assert len(list(lake.table("t").scan(row_filter="text = 'a'").plan_files())) == 1


def test_a_table_that_is_not_there(lake: Lake) -> None:
    sink = IcebergSink.for_row(SCHEMA).table_loader(lake.loader("none")).build()
    with pytest.raises(ConfigurationError, match=r"there is no table lake\.db\.none"):
        sink.create_writer(host())


def test_required_columns_are_named(lake: Lake) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("text", pa.string())])
    sink = IcebergSink.for_row(schema).table_loader(lake.loader("t")).create_table().build()
    with pytest.raises(UnsupportedError, match=r"column 'id' of table lake\.db\.t is required"):
        prepared(sink, [(None, "a")], host())


@pytest.mark.parametrize("text", ["day()", "bucket(x, y)", "nothing(id)", ""])
def test_what_is_no_partitioning(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no partitioning"):
        partition_transform(text)


def test_settings_that_do_not_fit_together(lake: Lake) -> None:
    loader = lake.loader("t")
    for made, says in (
        (IcebergSink.for_row(SCHEMA), "needs table_loader"),
        (IcebergSink.for_row().table_loader(loader).upsert(True), "needs equality_field_columns"),
        (IcebergSink.for_row().table_loader(loader).create_table(), "need the columns"),
        (builder(lake).equality_field_columns("no"), "no column 'no'"),
        (builder(lake).equality_field_columns("id").overwrite(True), "cannot be set together"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            made.build()


@pytest.mark.parametrize("record", [(7.9, "a"), {"id": 7.9, "text": "a"}, Row(id=7.9, text="a")])
def test_number_with_a_fraction_fails_in_a_column_of_whole_numbers(lake: Lake, record: Any) -> None:
    """K4: it was cut to 7."""
    with pytest.raises(UnsupportedError, match=r"column 'id' is int64.*7\.9 is not a whole number"):
        written(builder(lake).build(), [(1, "a"), record])
