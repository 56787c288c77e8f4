"""What the source of Iceberg reads: a snapshot, what is appended after it, and what it refuses to follow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.connectors.iceberg.lake import Lake

from penstock.base.errors import ConfigurationError, OperationError, UnknownNameError
from penstock.connectors.iceberg.source import IcebergSource, IcebergSourceBuilder
from penstock.connectors.iceberg.tables import partition_transform
from penstock.datastream.connectors.iceberg import StreamingStartingStrategy
from penstock.testing.connectors import SourceRun, read_source

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
STRATEGIES = StreamingStartingStrategy


def create(lake: Lake, *partitioning: str) -> None:
    with lake.loader("t").catalog.load_catalog() as catalog:
        table = catalog.create_table("db.t", SCHEMA)
        if partitioning:
            with table.update_spec() as spec:
                for text in partitioning:
                    spec.add_field(*partition_transform(text))


def append(lake: Lake, *ids: int, text: str = "a", branch: str = "main") -> int:
    """The snapshot that it makes."""
    with lake.loader("t").opened() as table:
        table.append(pa.table({"id": list(ids), "text": [text] * len(ids)}, SCHEMA), branch=branch)
        found = table.metadata.snapshot_by_name(branch)
        assert found is not None
        return found.snapshot_id


def builder(lake: Lake) -> IcebergSourceBuilder:
    return IcebergSource.builder().table_loader(lake.loader("t"))


def ids(values: list[Any]) -> list[int]:
    return sorted(value.id for value in values)


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_each_row_once_wherever_it_begins_again(lake: Lake, hostile: bool, parallelism: int) -> None:
    """G8: also when everything is replaced after every batch and every split."""
    create(lake, "bucket(3, id)")
    append(lake, *range(40))
    append(lake, *range(40, 60))
    source = builder(lake).build()
    assert ids(read_source(source, batch_size=7, parallelism=parallelism, hostile=hostile).all_values) == list(
        range(60)
    )


def test_an_empty_table_ends(lake: Lake) -> None:
    create(lake)
    assert read_source(builder(lake).build()).all_values == []


def test_columns_and_conditions(lake: Lake) -> None:
    create(lake, "text")
    append(lake, 1, 2, 3)
    append(lake, 4, 5, text="b")
    source = builder(lake).project("id").filters("text = 'b' and id > 4").build()
    rows = read_source(source, hostile=True).all_values
    assert [row.as_dict() for row in rows] == [{"id": 5}]
    assert len(Planned(source).splits) == 1


class Planned:
    """What an enumerator finds."""

    def __init__(self, source: IcebergSource) -> None:
        cluster = SourceRun(source)
        cluster.master.run_background()
        self.splits = cluster.enumerator.snapshot_state(1)["pending"]
        cluster.close()


def test_snapshots_times_branches_and_tags(lake: Lake) -> None:
    create(lake)
    first = append(lake, 1)
    with lake.loader("t").opened() as table:
        with table.manage_snapshots() as snapshots:
            snapshots.create_tag(first, "tagged").create_branch(first, "side")
        made = table.snapshot_by_id(first)
        assert made is not None
    append(lake, 2)
    append(lake, 3, branch="side")
    with lake.loader("t").opened() as table, table.update_schema() as update:
        update.rename_column("text", "words")
    for source, expected in (
        (builder(lake), [1, 2]),
        (builder(lake).snapshot_id(first).project("id"), [1]),
        (builder(lake).as_of_timestamp(made.timestamp_ms).project("id"), [1]),
        (builder(lake).tag("tagged").project("id"), [1]),
        (builder(lake).branch("side"), [1, 3]),
    ):
        assert ids(read_source(source.build()).all_values) == expected
    (row,) = read_source(builder(lake).filters("id = 2").build()).all_values
    assert row.as_dict() == {"id": 2, "words": "a"}


def following(lake: Lake, strategy: StreamingStartingStrategy) -> IcebergSourceBuilder:
    return builder(lake).streaming(True).starting_strategy(strategy).monitor_interval(1)


class Follower:
    """A source that is read as far as it goes."""

    def __init__(self, source: IcebergSource) -> None:
        self.cluster = SourceRun(source)

    def read(self) -> list[int]:
        """All that has come so far."""
        for _ in range(3):
            self.cluster.poll(0, 100)
            self.cluster.deliver()
            while self.cluster.readers[0].snapshot_state(1):
                self.cluster.poll(0, 100)
        return ids(self.cluster.all_values)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (STRATEGIES.TABLE_SCAN_THEN_INCREMENTAL, [1, 2, 3, 4, 5]),
        (STRATEGIES.INCREMENTAL_FROM_LATEST_SNAPSHOT, [3, 4, 5]),
        (STRATEGIES.INCREMENTAL_FROM_EARLIEST_SNAPSHOT, [1, 2, 3, 4, 5]),
        (STRATEGIES.INCREMENTAL_FROM_SNAPSHOT_ID, [2, 3, 4, 5]),
        (STRATEGIES.INCREMENTAL_FROM_SNAPSHOT_TIMESTAMP, [2, 3, 4, 5]),
    ],
)
def test_a_table_is_followed_and_each_row_comes_once(
    lake: Lake, strategy: StreamingStartingStrategy, expected: list[int]
) -> None:
    """G8: through restarts, too."""
    create(lake)
    append(lake, 1)
    second = append(lake, 2)
    append(lake, 3)
    source = following(lake, strategy)
    if strategy is STRATEGIES.INCREMENTAL_FROM_SNAPSHOT_ID:
        source.start_snapshot_id(second)
    if strategy is STRATEGIES.INCREMENTAL_FROM_SNAPSHOT_TIMESTAMP:
        found = lake.table("t").snapshot_by_id(second)
        assert found is not None
        source.start_snapshot_timestamp(found.timestamp_ms)
    follower = Follower(source.build())
    assert follower.read() == [one for one in expected if one < 4]
    append(lake, 4)
    follower.cluster.restart()
    append(lake, 5)
    assert follower.read() == expected
    follower.cluster.restart()
    assert follower.read() == expected
    follower.cluster.close()


def test_a_table_that_is_empty_at_first(lake: Lake) -> None:
    create(lake)
    follower = Follower(following(lake, STRATEGIES.INCREMENTAL_FROM_LATEST_SNAPSHOT).build())
    assert follower.read() == []
    append(lake, 1)
    append(lake, 2)
    assert follower.read() == [1, 2]
    follower.cluster.close()


@pytest.mark.parametrize(("operation", "setter"), [("overwrite", "overwrite"), ("delete", "delete")])
def test_rows_that_are_replaced_or_removed_end_it_unless_they_are_skipped(
    lake: Lake, operation: str, setter: str
) -> None:
    create(lake, "id")
    append(lake, 1, 2)
    source = following(lake, STRATEGIES.INCREMENTAL_FROM_LATEST_SNAPSHOT)
    followers = [Follower(source.build())]
    getattr(source, f"skip_{setter}_snapshots")(True)
    followers.append(Follower(source.build()))
    assert [one.read() for one in followers] == [[1, 2], [1, 2]]
    with lake.loader("t").opened() as table:
        if operation == "delete":
            table.delete("id = 1")
        else:
            with table.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
                for task in table.scan(row_filter="id = 1").plan_files():
                    update.delete_data_file(task.file)
    append(lake, 3)
    with pytest.raises(OperationError, match=f"skip_{setter}_snapshots"):
        followers[0].read()
    assert followers[1].read() == [1, 2, 3]
    for one in followers:
        one.cluster.close()


def test_a_history_that_is_gone(lake: Lake) -> None:
    create(lake)
    append(lake, 1)
    follower = Follower(following(lake, STRATEGIES.TABLE_SCAN_THEN_INCREMENTAL).build())
    assert follower.read() == [1]
    last = append(lake, 2)
    append(lake, 3)
    with lake.loader("t").opened() as table:
        table.maintenance.expire_snapshots().by_id(last).commit()
    with pytest.raises(OperationError, match="It has expired meanwhile, or the table was rolled back"):
        follower.read()
    follower.cluster.close()


def test_columns_that_are_added_are_there_after_a_new_start(lake: Lake) -> None:
    create(lake)
    append(lake, 1)
    follower = Follower(following(lake, STRATEGIES.TABLE_SCAN_THEN_INCREMENTAL).build())
    follower.read()
    with lake.loader("t").opened() as table:
        with table.update_schema() as update:
            update.union_by_name(pa.schema([("more", pa.int64())]))
        table.append(pa.table({"id": [2], "text": ["b"], "more": [7]}))
    follower.read()
    assert [row.as_dict() for row in follower.cluster.all_values] == [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]
    follower.cluster.close()
    rows = [row.as_dict() for row in read_source(builder(lake).build()).all_values]
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 1, "text": "a", "more": None},
        {"id": 2, "text": "b", "more": 7},
    ]


def test_settings_that_do_not_fit_together(lake: Lake) -> None:
    create(lake)
    with pytest.raises(ConfigurationError, match="snapshot_id and tag cannot be set together"):
        builder(lake).snapshot_id(1).tag("x").build()
    with pytest.raises(ConfigurationError, match="is for a source that ends"):
        builder(lake).streaming(True).as_of_timestamp(1).build()
    with pytest.raises(ConfigurationError, match="start_snapshot_id go together"):
        following(lake, STRATEGIES.INCREMENTAL_FROM_SNAPSHOT_ID).build()
    with pytest.raises(UnknownNameError, match="no column 'no'"):
        builder(lake).project("no").build()
    with pytest.raises(ConfigurationError, match="no branch or tag 'no'"):
        read_source(builder(lake).branch("no").build())
    with pytest.raises(ConfigurationError, match="has no snapshot 7"):
        read_source(builder(lake).snapshot_id(7).build())
