"""Rows that other writers delete by equality, as Flink's sink does, are left out."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType
from tests.connectors.iceberg.java_library import write_in_java
from tests.connectors.iceberg.lake import Lake
from tests.connectors.iceberg.test_tables import collected, environment

from penstock.base.errors import UnsupportedError
from penstock.connectors.iceberg.source import IcebergSource
from penstock.testing.connectors import read_source

pytestmark = pytest.mark.slow

COLUMNS = "id BIGINT, k STRING, v BIGINT"
NO_PARTITION = PartitionSpec()
BY_K = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "k"), spec_id=0)


class DeleteManifestWriter(ManifestWriterV2):
    """pyiceberg writes manifests of data alone."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def create(lake: Lake, spec: PartitionSpec = NO_PARTITION) -> None:
    with lake.loader("t").catalog.load_catalog() as catalog:
        schema = Schema(
            NestedField(1, "id", LongType()), NestedField(2, "k", StringType()), NestedField(3, "v", LongType())
        )
        catalog.create_table("db.t", schema, partition_spec=spec)


def append(lake: Lake, *rows: tuple[int | None, str, int]) -> None:
    with lake.loader("t").opened() as table:
        columns = list(zip(*rows, strict=True))
        table.append(pa.table({"id": pa.array(columns[0], pa.int64()), "k": columns[1], "v": columns[2]}))


def delete_where(lake: Lake, ids: list[int], *rows: tuple[Any, ...], partition: tuple[str, ...] = ()) -> None:
    """Add a snapshot whose file deletes rows by equality of the fields with these ids."""
    table = lake.table("t")
    folder, snapshot_id = Path(table.location().removeprefix("file://")), uuid.uuid4().int >> 66
    path = folder / "data" / f"{uuid.uuid4()}-deletes.parquet"
    fields = [table.schema().find_field(number) for number in ids]
    arrow = pa.schema(
        [
            pa.field(
                one.name,
                pa.string() if one.name == "k" else pa.int64(),
                metadata={"PARQUET:field_id": str(one.field_id)},
            )
            for one in fields
        ]
    )
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), arrow.types, strict=True)]
    pq.write_table(pa.table(columns, schema=arrow), path)
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=len(rows),
        file_size_in_bytes=path.stat().st_size,
        equality_ids=ids,
    )
    file.spec_id = table.spec().spec_id
    manifest_path = f"{table.location()}/metadata/{uuid.uuid4()}-m0.avro"
    with DeleteManifestWriter(
        table.spec(), table.schema(), table.io.new_output(manifest_path), snapshot_id, "deflate"
    ) as writer:
        writer.add_entry(
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file)
        )
    _commit(lake, table, snapshot_id, writer.to_manifest_file())


def _commit(lake: Lake, table: Table, snapshot_id: int, manifest: Any) -> None:
    before = table.current_snapshot()
    assert before is not None
    sequence = (before.sequence_number or 0) + 1
    list_path = f"{table.location()}/metadata/snap-{snapshot_id}.avro"
    with write_manifest_list(
        2, table.io.new_output(list_path), snapshot_id, before.snapshot_id, sequence, "deflate"
    ) as writer:
        writer.add_manifests([*before.manifests(table.io), manifest])
    with contextlib.closing(sqlite3.connect(lake.folder / "catalog.db")) as catalog, catalog:
        path = Path(table.metadata_location.removeprefix("file://"))
        metadata = json.loads(path.read_text())
        now_ms = max(int(time.time() * 1_000), metadata["last-updated-ms"] + 1)
        metadata["snapshots"].append(
            {
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": before.snapshot_id,
                "sequence-number": sequence,
                "timestamp-ms": now_ms,
                "manifest-list": list_path,
                "summary": {"operation": "overwrite", "total-equality-deletes": "1"},
                "schema-id": 0,
            }
        )
        metadata |= {"current-snapshot-id": snapshot_id, "last-sequence-number": sequence, "last-updated-ms": now_ms}
        metadata["refs"]["main"]["snapshot-id"] = snapshot_id
        metadata["snapshot-log"].append({"snapshot-id": snapshot_id, "timestamp-ms": now_ms})
        changed = path.with_name(f"{len(metadata['snapshots']):05d}-{uuid.uuid4()}.metadata.json")
        changed.write_text(json.dumps(metadata))
        catalog.execute("UPDATE iceberg_tables SET metadata_location = ?", (f"file://{changed}",))


def read(lake: Lake, condition: str = "TRUE", columns: str = "*", mode: str = "STREAMING") -> list[tuple[Any, ...]]:
    tables = environment(mode)
    tables.execute_sql(f"CREATE TABLE t ({COLUMNS}) WITH ({lake.options()})")
    return collected(tables, f"SELECT {columns} FROM t WHERE {condition}")


def changed_as_by_flink(lake: Lake) -> None:
    """Rows of three checkpoints: each deletes the keys that it writes."""
    create(lake)
    append(lake, (1, "a", 1), (2, "a", 1), (None, "a", 1))
    delete_where(lake, [1], (1,), (None,), (7,))
    append(lake, (1, "b", 2))
    delete_where(lake, [1, 2], (2, "a"), (1, "a"))
    append(lake, (3, "c", 3))


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH"])
def test_rows_that_are_older_than_a_deletion_are_left_out(lake: Lake, mode: str) -> None:
    """K4: by one column and by two, NULL included; rows that come later stay."""
    changed_as_by_flink(lake)
    assert read(lake, mode=mode) == [(1, "b", 2), (3, "c", 3)]
    assert read(lake, "id = 1") == [(1, "b", 2)]
    assert read(lake, "v >= 0", "v") == [(2,), (3,)], "without the column that is compared"
    source = IcebergSource.builder().table_loader(lake.loader("t")).project("v").build()
    assert sorted(row.v for row in read_source(source).all_values) == [2, 3]


def test_icebergs_own_library_deletes_the_same_rows(lake: Lake, tmp_path: Path) -> None:
    """K2: a table that Iceberg's library in Java has written, and what it reads of it."""
    metadata, rows = write_in_java(tmp_path / "t")
    assert rows == ["Record(1, b, 2)", "Record(3, c, 3)"]
    with lake.loader("t").catalog.load_catalog() as catalog:
        catalog.register_table("db.t", metadata)
    assert read(lake) == [(1, "b", 2), (3, "c", 3)]


def test_a_deletion_is_for_its_own_partition(lake: Lake) -> None:
    create(lake, BY_K)
    append(lake, (1, "a", 1), (1, "b", 1))
    delete_where(lake, [1], (1,), partition=("a",))
    assert read(lake) == [(1, "b", 1)]
    assert read(lake, "k = 'a'") == []


def test_changes_by_key_are_refused_while_planning(lake: Lake) -> None:
    """Files would be written again by pyiceberg, which does not know these deletions."""
    changed_as_by_flink(lake)
    tables = environment()
    tables.execute_sql(f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY (id) NOT ENFORCED) WITH ({lake.options()})")
    with pytest.raises(UnsupportedError, match=r"deleted by equality, .* rewrite_data_files"):
        tables.execute_sql("INSERT INTO t VALUES (1, 'x', 1)")
    tables.execute_sql(f"CREATE TABLE added ({COLUMNS}) WITH ({lake.options()}, 'catalog-table' = 't')")
    tables.execute_sql("INSERT INTO added VALUES (2, 'a', 9)").wait()
    assert read(lake) == [(1, "b", 2), (2, "a", 9), (3, "c", 3)]


def test_deletions_by_a_column_that_is_gone_are_refused(lake: Lake) -> None:
    changed_as_by_flink(lake)
    with lake.loader("t").opened() as table, table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("id")
    tables = environment()
    tables.get_config().set("restart-strategy.type", "none")
    tables.execute_sql(f"CREATE TABLE t (v BIGINT) WITH ({lake.options()})")
    with pytest.raises(Exception, match="deleted by equality of the field 1, which is no column"):
        collected(tables, "SELECT * FROM t")
