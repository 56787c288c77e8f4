"""Tables of Iceberg in S3, by pyiceberg's own properties."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.connectors.iceberg.lake import Lake
from tests.connectors.iceberg.test_exactly_once import builder, commit, host, prepared
from tests.servers.s3 import S3Server, s3_server

from penstock.common import Row, RowKind
from penstock.connectors.iceberg.source import IcebergSource
from penstock.testing.connectors import read_source


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def test_rows_are_added_changed_and_read(s3: S3Server, tmp_path: Path) -> None:
    """G9: the table's files are in a bucket."""
    properties = {
        "s3.endpoint": s3.endpoint_url,
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
        "s3.region": "us-east-1",
    }
    lake = Lake(tmp_path / "lake", f"{s3.new_bucket()}/warehouse", tuple(properties.items())).create()
    sink = builder(lake).build()
    staged = prepared(sink, [(1, "a"), (2, "b")], host())
    commit(sink, staged)
    commit(sink, staged, again=True)
    changing = builder(lake).equality_field_columns("id").build()
    commit(changing, prepared(changing, [(1, "c"), Row.of_kind(RowKind.DELETE, 2, None)], host("b")))
    rows = read_source(IcebergSource.builder().table_loader(lake.loader("t")).build(), hostile=True).all_values
    assert [row.as_dict() for row in rows] == [{"id": 1, "text": "c"}]
    assert all(task.file.file_path.startswith("s3://") for task in lake.table("t").scan().plan_files())
