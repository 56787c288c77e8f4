"""State in columns, read from a savepoint as it is (H5)."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSource
from penstock.datastream.expressions import col, lit
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.formats.parquet import ParquetFormat
from penstock.state.errors import StateError
from penstock.state.keys import assign_key_group
from penstock.state_processor import SavepointReader


def test_partials_are_a_table(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"key": ["a", "b", "a"], "value": [1, 2, 3], "at": [5, 5, 5]}), folder / "1.parquet")
    settings = {"execution.target": "local", "execution.checkpointing.dir": str(tmp_path / "checkpoints")}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(2).set_runtime_mode(RuntimeExecutionMode.MICRO_BATCH)
    source = FileSource.for_bulk_file_format(ParquetFormat(as_columns=True), str(folder))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    stream = env.from_source(source.monitor_continuously(10).build(), strategy, "rows").uid("rows")
    window = stream.key_by("key").window(TumblingEventTimeWindows.of(10))
    window.select(lit(1).count.alias("n"), col("value").sum.alias("total")).uid("windows").print()
    env.execute()
    reader = SavepointReader.read(str(max((tmp_path / "checkpoints").glob("*/chk-*"))))
    table = reader.read_columns("windows")
    assert sorted(tuple(row.values()) for row in table.to_pylist()) == sorted(
        [(assign_key_group("a", 128), 0, "a", 2, 4), (assign_key_group("b", 128), 0, "b", 1, 2)]
    )
    assert [state.kind for state in reader.operator("windows").states] == ["columns"]
    with pytest.raises(StateError, match="read_columns"):
        reader.read_keyed_state("windows", "_penstock_column_panes")
    with pytest.raises(StateError, match="keeps no state in columns"):
        reader.read_columns("rows")
