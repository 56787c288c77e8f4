"""An object store that is too busy refuses requests, and breaks connections: the client asks again (G6, G9, H1)."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from tests.datastream.environments import local_environment
from tests.servers.s3 import S3Server, s3_server
from tests.servers.unreliable_s3 import COUNTS_PATH
from tests.stores import at

from penstock.common import Duration, Encoder, WatermarkStrategy
from penstock.datastream.connectors.file_system import FileSink, FileSource, StreamFormat

FILES, LINES = 4, 250


@pytest.fixture
def busy() -> Iterator[S3Server]:
    with s3_server(fails_every=5) as server:
        yield server


@pytest.mark.slow
def test_a_job_goes_on_in_a_store_that_often_fails(busy: S3Server) -> None:
    """G6, G9, H1, H2: each line is read once and written once, through a savepoint, though requests are refused,
    connections break, and answers of what was done are lost, with source, sink and checkpoints there."""
    folder = at(busy.new_bucket())
    for name in range(FILES):
        (folder / "in" / f"{name}.txt").write_text("".join(f"{name}-{n}\n" for n in range(LINES)))

    def start(is_bounded: bool, **options: str) -> Any:
        env = local_environment(
            2,
            execution__checkpointing__interval="200 ms",
            execution__checkpointing__dir=str(folder / "checkpoints"),
            execution__checkpointing__data_inline_threshold="0 b",
            **options,
        )
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(folder / "in"))
        if not is_bounded:
            source.monitor_continuously(Duration.of_seconds(1))
        lines = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "lines").uid("lines")
        counted = lines.key_by(lambda line: line).reduce(lambda one, other: f"{one} again").uid("counted")
        sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder()).build()
        counted.sink_to(sink).uid("out")
        return env.execute_async("lines")

    job = start(is_bounded=False)
    job.trigger_checkpoint().result(100)
    savepoint = job.stop_with_savepoint(False, str(folder / "savepoints")).result(100)
    job.wait()
    start(is_bounded=True, execution__state_recovery__path=savepoint).wait()
    written = [line for file in (folder / "out").rglob("part-*") for line in file.read_text().splitlines()]
    assert sorted(written) == sorted(f"{name}-{n}" for name in range(FILES) for n in range(LINES))
    with urllib.request.urlopen(f"{busy.endpoint_url}{COUNTS_PATH}") as counts:
        assert min(map(int, counts.read().split())) > 3
