"""Programs over columns on Spark: columns between processes, in each execution mode (A2, D4, I1)."""

from pathlib import Path

import pytest
from tests.datastream.test_columns import STRATEGY, collected, expected, parquet, windows

from penstock.common import Configuration
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSource
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.formats.parquet import ParquetFormat

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("mode", ["STREAMING", "STREAMING, unaligned", "BATCH", "MICRO_BATCH"])
def test_windows_over_columns(mode: str, tmp_path: Path) -> None:
    path = parquet(tmp_path / "in", files=2)
    configuration = Configuration()
    if "unaligned" in mode:
        configuration.set_string("execution.checkpointing.unaligned.enabled", "true")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2).set_runtime_mode(RuntimeExecutionMode[mode.partition(",")[0]])
    if "STREAMING" in mode:
        env.enable_checkpointing(50)
    source = FileSource.for_bulk_file_format(ParquetFormat(as_columns=True), path).build()
    stream = env.from_source(source, STRATEGY, "bids")
    assert collected(windows(stream, TumblingEventTimeWindows.of(100))) == expected(100, 100)
