"""`DeltaSource`: what it does beside the rules that all sources keep, which are for `test_conformance`."""

from __future__ import annotations

import base64
import datetime
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap64

from penstock.base.errors import (
    ConfigurationError,
    FormatError,
    OperationError,
    UnknownNameError,
)
from penstock.connectors.delta.source import DeltaSource
from penstock.connectors.delta.table import MissingTableError, UnsupportedTableError
from penstock.runtime.connector import InputStatus
from penstock.testing.connectors import SourceRun, read_source

FEED = {"delta.enableChangeDataFeed": "true"}


def append(path: Path, ids: Any, **more: Any) -> None:
    ids = list(ids)
    columns = pa.table({"id": ids, "name": [f"n{n}" for n in ids]})
    write_deltalake(path, columns, mode="append", **more)


def read_ids(run: SourceRun) -> list[int]:
    return sorted(row.id for row in run.all_values)


class Following:
    """A source that follows a table, and what it has given."""

    def __init__(self, source: DeltaSource) -> None:
        self.run = SourceRun(source)

    def rows(self) -> list[Any]:
        """What is new, in the order in which it came."""
        begun = len(self.run.all_values)
        silent = 0
        while silent < 3:
            is_silent = self.run.poll(0, 2) is InputStatus.NOTHING_AVAILABLE and not self.run.deliver()
            silent = silent + 1 if is_silent else 0
        return self.run.all_values[begun:]


def follow(path: Path) -> Any:
    return DeltaSource.for_continuous_row_data(path).update_check_interval(1)


def test_an_older_version_and_some_of_its_columns(tmp_path: Path) -> None:
    """Rows that a later version adds are not read."""
    for start in range(0, 50, 10):
        append(tmp_path, range(start, start + 10))
    older = DeltaSource.for_bounded_row_data(tmp_path).version_as_of(1).column_names("id").build()
    assert sorted(list(row) for row in read_source(older).all_values) == [[n] for n in range(20)]


def test_a_version_by_its_time(tmp_path: Path) -> None:
    append(tmp_path, [1])
    first = DeltaTable(tmp_path).history()[0]["timestamp"]
    append(tmp_path, [2])
    moment = datetime.datetime.fromtimestamp(first / 1_000, datetime.UTC).isoformat()
    source = DeltaSource.for_bounded_row_data(tmp_path).timestamp_as_of(moment).build()
    assert read_ids(read_source(source)) == [1]


def test_where_following_begins(tmp_path: Path) -> None:
    for number in range(3):
        append(tmp_path, [number])
    times = {entry["version"]: entry["timestamp"] for entry in DeltaTable(tmp_path).history()}
    since = datetime.datetime.fromtimestamp(times[1] / 1_000, datetime.UTC).isoformat()
    built = {
        "version": follow(tmp_path).starting_version(1).build(),
        "latest": follow(tmp_path).starting_version("latest").build(),
        "time": follow(tmp_path).starting_timestamp(since).build(),
    }
    found = {name: Following(source) for name, source in built.items()}
    assert {name: [row.id for row in one.rows()] for name, one in found.items()} == {
        "version": [1, 2],
        "latest": [],
        "time": [1, 2],
    }
    append(tmp_path, [3])
    assert {name: [row.id for row in one.rows()] for name, one in found.items()} == {
        "version": [3],
        "latest": [3],
        "time": [3],
    }


def test_deletions_and_changes_fail_unless_they_are_ignored(tmp_path: Path) -> None:
    append(tmp_path, [1, 2])
    append(tmp_path, [3])
    sources = [follow(tmp_path), follow(tmp_path).ignore_deletes(True), follow(tmp_path).ignore_changes(True)]
    strict, no_deletes, no_changes = [Following(one.build()) for one in sources]
    for one in (strict, no_deletes, no_changes):
        assert sorted(row.id for row in one.rows()) == [1, 2, 3]
    DeltaTable(tmp_path).delete("id = 3")
    with pytest.raises(OperationError, match=r"version 2 .* deletes rows \(DELETE\).* set ignore_deletes"):
        strict.rows()
    assert no_deletes.rows() == no_changes.rows() == []
    DeltaTable(tmp_path).update(updates={"name": "'x'"}, predicate="id = 1")
    with pytest.raises(OperationError, match=r"version 3 .* changes rows \(UPDATE\).* set ignore_changes"):
        no_deletes.rows()
    assert sorted(row.id for row in no_changes.rows()) == [1, 2]


def test_changes_come_in_their_order(tmp_path: Path) -> None:
    """A row as it was comes before the row as it is, and applied one by one they give the table."""
    append(tmp_path, range(6), configuration=FEED)
    source = follow(tmp_path).read_change_feed(True).build()
    assert source.max_parallelism() == 1
    following = Following(source)
    table: dict[int, Any] = {}

    def apply() -> dict[int, Any]:
        for row in following.rows():
            kind = str(row.get_row_kind())
            if "DELETE" in kind or "BEFORE" in kind:
                assert table.pop(row.id) == row.name
            else:
                assert row.id not in table
                table[row.id] = row.name
        return table

    def real() -> dict[int, Any]:
        columns = DeltaTable(tmp_path).to_pyarrow_table().to_pydict()
        return dict(zip(columns["id"], columns["name"], strict=True))

    assert apply() == real() != {}
    DeltaTable(tmp_path).update(updates={"name": "'x'"}, predicate="id > 1")
    DeltaTable(tmp_path).delete("id = 5")
    changed = pa.table({"id": [0, 7], "name": ["merged", "new"]})
    merge = DeltaTable(tmp_path).merge(changed, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    append(tmp_path, [8])
    assert apply() == real()
    write_deltalake(tmp_path, pa.table({"id": [1], "name": ["all new"]}), mode="overwrite")
    assert apply() == real() == {1: "all new"}


def test_partitions_missing_columns_and_types(tmp_path: Path) -> None:
    day = datetime.date(2024, 1, 31)
    at = datetime.datetime(2024, 1, 31, 12, 30, 0, 123456)
    zoned = pa.array([at], pa.timestamp("us", "UTC"))
    first = pa.table({"day": pa.array([day]), "zone": zoned, "at": pa.array([at]), "n": [1]})
    write_deltalake(tmp_path, first, partition_by=["day", "zone"])
    more = pa.table({"day": pa.array([None], pa.date32()), "zone": zoned, "at": pa.array([at]), "n": [2], "m": ["m"]})
    write_deltalake(tmp_path, more, mode="append", schema_mode="merge")
    rows = read_source(DeltaSource.for_bounded_row_data(tmp_path).build()).all_values
    there = at.replace(tzinfo=datetime.UTC)
    expected = [
        {"day": day, "zone": there, "at": at, "n": 1, "m": None},
        {"day": None, "zone": there, "at": at, "n": 2, "m": "m"},
    ]
    assert sorted((row.as_dict() for row in rows), key=lambda row: row["n"]) == expected


def test_columns_that_go_fail_and_columns_that_come_do_not(tmp_path: Path) -> None:
    append(tmp_path, [1])
    following = Following(follow(tmp_path).build())
    assert [row.id for row in following.rows()] == [1]
    write_deltalake(tmp_path, pa.table({"id": [2], "more": [0.5]}), mode="append", schema_mode="merge")
    assert [list(row) for row in following.rows()] == [[2, None]]
    write_deltalake(tmp_path, pa.table({"id": ["text"]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(FormatError, match="has no columns name; it has id"):
        following.rows()


def test_what_is_gone_is_named(tmp_path: Path) -> None:
    """A log that begins later, a file that VACUUM took, and a table that is not there."""
    for number in range(3):
        append(tmp_path, [number])
    begun = Following(follow(tmp_path).starting_version(1).build())
    DeltaTable(tmp_path).create_checkpoint()
    for version in (0, 1):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(OperationError, match=r"version 1 .* is no longer in its log"):
        begun.rows()
    for file in tmp_path.glob("*.parquet"):
        file.unlink()
    with pytest.raises(MissingTableError, match="VACUUM has removed it"):
        read_source(DeltaSource.for_bounded_row_data(tmp_path).build())
    with pytest.raises(MissingTableError, match="there is no Delta table at"):
        DeltaSource.for_bounded_row_data(tmp_path / "none").build()


def test_deletion_vectors_and_files_elsewhere_are_refused(tmp_path: Path) -> None:
    """Rows that are deleted so would come back."""
    append(tmp_path, [1])
    following = Following(follow(tmp_path).build())
    following.rows()
    add: dict[str, Any] = {
        "path": "x.parquet",
        "partitionValues": {},
        "size": 1,
        "modificationTime": 0,
        "dataChange": True,
    }
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 1, "cardinality": 1}
    version = tmp_path / "_delta_log" / f"{1:020d}.json"
    version.write_text(json.dumps({"add": {**add, "deletionVector": vector}}))
    with pytest.raises(UnsupportedTableError, match=r"x\.parquet .* deletion vector, so version 1 is not followed"):
        following.rows()
    version.write_text(json.dumps({"add": {**add, "path": "s3://elsewhere/x.parquet"}}))
    with pytest.raises(UnsupportedTableError, match="clones that share files are not read"):
        Following(follow(tmp_path).starting_version(1).build()).rows()


_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def _vector(deleted: Sequence[int]) -> dict[str, Any]:
    bitmap = struct.pack("<i", 1681511377) + BitMap64(deleted).serialize()
    bitmap += bytes(-len(bitmap) % 4)
    text = base64.b85encode(bitmap).decode().translate(str.maketrans(_B85, _Z85))
    vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(bitmap), "cardinality": len(deleted)}
    return {"deletionVector": vector}


def delete_by_vector(path: Path, version: int, deleted: Sequence[int], before: Sequence[int] = ()) -> None:
    """Write a version in which a vector deletes rows of the table's only file, as Spark does."""
    (added,) = pa.table(DeltaTable(path).get_add_actions()).to_pylist()
    file = {"path": added["path"], "partitionValues": {}, "dataChange": True}
    statistics = {"stats": json.dumps({"numRecords": added["num_records"]})}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": {**file, "deletionTimestamp": 0, **(_vector(before) if before else {})}},
        {"add": {**file, "size": added["size_bytes"], "modificationTime": 0, **statistics, **_vector(deleted)}},
    ]
    (path / "_delta_log" / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))


def test_rows_that_a_deletion_vector_deletes_are_not_read(tmp_path: Path) -> None:
    append(tmp_path, range(6))
    delete_by_vector(tmp_path, 1, [0, 3])
    bounded = DeltaSource.for_bounded_row_data(tmp_path)
    assert read_ids(read_source(bounded.build())) == [1, 2, 4, 5]
    following = Following(follow(tmp_path).build())
    assert sorted(row.id for row in following.rows()) == [1, 2, 4, 5]
    before = DeltaSource.for_bounded_row_data(tmp_path).version_as_of(0)
    assert read_ids(read_source(before.build())) == list(range(6))
    delete_by_vector(tmp_path, 2, [0, 3, 5], [0, 3])
    assert read_ids(read_source(bounded.build())) == [1, 2, 4]
    with pytest.raises(UnsupportedTableError, match=r"deletion vector, so version 2 is not followed"):
        following.rows()


def test_mistakes_are_named(tmp_path: Path) -> None:
    append(tmp_path, [1])
    with pytest.raises(UnknownNameError, match="has no columns no; it has id, name"):
        DeltaSource.for_bounded_row_data(tmp_path).column_names("id", "no").build()
    with pytest.raises(ConfigurationError, match=r"keeps no changes: set delta\.enableChangeDataFeed"):
        Following(follow(tmp_path).read_change_feed(True).build()).rows()
    with pytest.raises(ConfigurationError, match="at a version or at a time"):
        follow(tmp_path).starting_version(1).starting_timestamp("2024-01-01")
    with pytest.raises(ConfigurationError, match="a number or 'latest'"):
        follow(tmp_path).starting_version("first")
    with pytest.raises(ConfigurationError, match="every ms at most, not every 0"):
        DeltaSource.for_continuous_row_data(tmp_path).update_check_interval(0)
