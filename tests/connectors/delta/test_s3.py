"""A Delta table in S3: versions are made by conditional puts, and of two writers of one version one is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.connectors.delta.test_sink import committer, has_read, prepared
from tests.servers.s3 import s3_server

from penstock.datastream.connectors.delta import DeltaSink, DeltaSource
from penstock.testing.connectors import SinkHost, read_source


@pytest.fixture(scope="module")
def storage() -> Iterator[dict[str, str]]:
    with s3_server() as server:
        yield {
            "aws_endpoint_url": server.endpoint_url,
            "aws_allow_http": "true",
            "aws_access_key_id": "key",
            "aws_secret_access_key": "secret",
            "aws_region": "us-east-1",
            "bucket": server.new_bucket(),
        }


def read_rows(path: str, options: dict[str, str]) -> list[Any]:
    source = DeltaSource.for_bounded_row_data(path, options).build()
    return sorted(tuple(row) for row in read_source(source).all_values)


@pytest.mark.parametrize("key", [(), ("id",)])
def test_two_writers_in_s3(storage: dict[str, str], key: tuple[str, ...]) -> None:
    """G9: a zombie that has read the same version commits nothing twice; another job's rows are there, too."""
    options = dict(storage)
    path = f"{options.pop('bucket')}/{'merged' if key else 'added'}"
    builder = DeltaSink.for_row_data(path, {"id": int, "k": str}, options).with_partition_columns("k")
    sink = builder.with_key_columns(*key).build() if key else builder.build()
    found = prepared(sink, [(1, "a"), (2, "b/c")], SinkHost(job_id="one"))
    zombie, successor, other = committer(sink), committer(sink), committer(sink)
    of_other = prepared(sink, [(3, "a")], SinkHost(job_id="other"))
    with has_read(zombie), has_read(other):
        successor.recommit(found)
        zombie.commit(found)
        other.commit(of_other)
    assert read_rows(path, options) == [(1, "a"), (2, "b/c"), (3, "a")]
    assert DeltaTable(path, storage_options=options).version() == 2
