"""Programs over columns, from files to results, in one process (A2, C1, D4, G8, I1)."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from penstock.common import Configuration, Duration, OutputTag, Row, Types, WatermarkStrategy
from penstock.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink, FileSource
from penstock.datastream.expressions import col, lit
from penstock.datastream.window import (
    CountTrigger,
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.formats.arrow import ArrowIpcFormat
from penstock.formats.csv import CsvColumnsFormat
from penstock.formats.parquet import ParquetFormat, ParquetWriterFactory

ROWS = 3_000
BIDS = [(i * 7 % 11, i % 101, i // 3 + i * 13 % 40) for i in range(ROWS)]
NAMES = ["auction", "price", "at"]
TABLE = pa.table(dict(zip(NAMES, map(list, zip(*BIDS, strict=True)), strict=True)))
STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(50)).with_timestamp_column("at")


def environment(
    parallelism: int,
    mode: RuntimeExecutionMode = RuntimeExecutionMode.STREAMING,
    settings: dict[str, str] | None = None,
) -> StreamExecutionEnvironment:
    configuration = Configuration.from_dict({"execution.target": "local", **(settings or {})})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(parallelism).set_runtime_mode(mode)


def parquet(directory: Path, files: int = 1) -> str:
    directory.mkdir(exist_ok=True)
    step = -(-ROWS // files)
    for index in range(files):
        part = TABLE.slice(index * step, step)
        pq.write_table(part, directory / f"{index}.parquet", row_group_size=400)
    return str(directory)


def bids(env: StreamExecutionEnvironment, path: str, bulk_format: Any = None) -> DataStream:
    source = FileSource.for_bulk_file_format(bulk_format or ParquetFormat(as_columns=True), path)
    return env.from_source(source.build(), STRATEGY, "bids")


def windows(stream: DataStream, assigner: Any) -> DataStream:
    return (
        stream.key_by("auction")
        .window(assigner)
        .select(lit(1).count.alias("n"), col("price").sum.alias("total"), col("price").max.alias("high"))
    )


def expected(size: int, slide: int) -> list[tuple[Any, ...]]:
    found: dict[tuple[int, int], list[int]] = {}
    for auction, price, at in BIDS:
        for start in range(at - at % slide, at - size, -slide):
            found.setdefault((auction, start), []).append(price)
    return sorted((a, s, s + size, len(p), sum(p), max(p)) for (a, s), p in found.items())


def collected(stream: DataStream) -> list[tuple[Any, ...]]:
    return sorted(tuple(value) for value in stream.execute_and_collect())


def visible(directory: Path) -> list[Path]:
    """The part files; their directory for hidden ones comes and goes."""
    return [f for pattern in ("part-*", "[!.]*/part-*") for f in directory.glob(pattern)]


def written(directory: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(r.values()) for f in visible(directory) for r in pq.ParquetFile(f).read().to_pylist())


@pytest.mark.parametrize("mode", list(RuntimeExecutionMode)[:3], ids=str)
@pytest.mark.parametrize("parallelism", [1, 4])
def test_windows_over_columns_are_right_in_every_execution_mode(
    parallelism: int, mode: RuntimeExecutionMode, tmp_path: Path
) -> None:
    """I1: also where columns go over a hash exchange."""
    path = parquet(tmp_path / "in", files=2)
    for assigner, size, slide in (
        (TumblingEventTimeWindows.of(100), 100, 100),
        (SlidingEventTimeWindows.of(100, 50), 100, 50),
    ):
        stream = windows(bids(environment(parallelism, mode), path), assigner)
        assert collected(stream) == expected(size, slide)


def test_micro_batches_go_on_with_the_partials(tmp_path: Path) -> None:
    path = parquet(tmp_path / "in")
    env = environment(2, RuntimeExecutionMode.MICRO_BATCH, {"execution.micro-batch.max-records": "400"})
    assert collected(windows(bids(env, path), TumblingEventTimeWindows.of(100))) == expected(100, 100)


def test_sessions_and_cumulative_windows_agree_with_those_by_record(tmp_path: Path) -> None:
    path = parquet(tmp_path / "in")

    def by_record(assigner: Any) -> list[Any]:
        def fold(key: int, window: Any, rows: Any) -> Any:
            prices = [r.price for r in rows]
            yield key, window.start, window.end, len(prices), sum(prices), max(prices)

        return collected(bids(environment(2), path).key_by(lambda r: r.auction).window(assigner).apply(fold))

    for assigner in (EventTimeSessionWindows.with_gap(4), CumulativeEventTimeWindows.of(100, 25)):
        assert collected(windows(bids(environment(2), path), assigner)) == by_record(assigner)


@pytest.mark.parametrize("kind", ["parquet", "ipc", "csv", "csv with header"])
def test_formats_hand_over_columns(kind: str, tmp_path: Path) -> None:
    source: Any = tmp_path / "file"
    types = dict.fromkeys(NAMES, Types.LONG())
    if kind == "parquet":
        pq.write_table(TABLE, source, row_group_size=700)
        bulk_format: Any = ParquetFormat(["price", "auction", "at"], as_columns=True)
    elif kind == "ipc":
        with pa.OSFile(str(source), "wb") as file, pa.ipc.new_file(file, TABLE.schema) as writer:
            writer.write_table(TABLE, max_chunksize=700)
        bulk_format = ArrowIpcFormat(["price", "auction", "at"])
    else:
        with_header = kind == "csv with header"
        pyarrow.csv.write_csv(TABLE, source, pyarrow.csv.WriteOptions(include_header=with_header))
        bulk_format = CsvColumnsFormat(types, has_header=with_header)
    stream = bids(environment(2), str(source), bulk_format)
    assert collected(stream.select("auction", "price", "at")) == sorted(BIDS)


def test_expressions_and_functions_of_batches_before_rows(tmp_path: Path) -> None:
    """Columns as far as operators know them, rows from there on."""
    stream = bids(environment(2), parquet(tmp_path / "in"))
    dear = stream.filter(col("price") >= 50).map_batches(
        lambda frame: frame.assign(euro=frame.price * 2), format="pandas"
    )
    result = dear.select("auction", (col("euro") + 1).alias("euro")).map(lambda row: (row.auction, row.euro))
    assert collected(result) == sorted((a, p * 2 + 1) for a, p, _ in BIDS if p >= 50)


def test_rows_become_columns(tmp_path: Path) -> None:
    env = environment(2)
    rows = env.from_collection([Row(auction=a, price=p, at=t) for a, p, t in BIDS])
    stream = rows.assign_timestamps_and_watermarks(STRATEGY)
    assert collected(windows(stream, TumblingEventTimeWindows.of(100))) == expected(100, 100)


def test_keys_by_name_serve_operators_by_record(tmp_path: Path) -> None:
    stream = bids(environment(4), parquet(tmp_path / "in"))
    totals = stream.map(lambda row: Row(auction=row.auction, n=1)).key_by("auction").sum("n")
    last: dict[int, int] = {}
    for row in totals.execute_and_collect():
        last[row.auction] = max(row.n, last.get(row.auction, 0))
    counts: dict[int, int] = {}
    for auction, _, _ in BIDS:
        counts[auction] = counts.get(auction, 0) + 1
    assert last == counts


def test_columns_are_written_as_columns(tmp_path: Path) -> None:
    env = environment(2)
    schema = pa.schema([("auction", pa.int64()), ("price", pa.int64())])
    sink = FileSink.for_bulk_format(str(tmp_path / "out"), ParquetWriterFactory(schema))
    by_price = BucketAssigner.by(lambda row: f"odd={row.price % 2}")
    bids(env, parquet(tmp_path / "in")).filter(col("auction") == 3).sink_to(sink.with_bucket_assigner(by_price).build())
    env.execute()
    files = visible(tmp_path / "out")
    assert {file.parent.name for file in files} == {"odd=0", "odd=1"}
    assert written(tmp_path / "out") == sorted((a, p) for a, p, _ in BIDS if a == 3)


def test_a_savepoint_of_columns_resumes_with_another_parallelism(tmp_path: Path) -> None:
    """D4, G8: half of the files, a savepoint, then all of them, with more subtasks and on another backend."""
    folder = tmp_path / "in"
    parquet(tmp_path / "all", files=2)
    folder.mkdir()
    (tmp_path / "all" / "0.parquet").rename(folder / "0.parquet")

    def build(env: StreamExecutionEnvironment) -> None:
        source = FileSource.for_bulk_file_format(ParquetFormat(as_columns=True), str(folder))
        strategy = STRATEGY.with_idleness(100)  # two of the readers have no file
        stream = env.from_source(source.monitor_continuously(20).build(), strategy, "bids").uid("bids")
        sink = FileSink.for_bulk_format(
            str(tmp_path / "out"),
            ParquetWriterFactory(
                {"auction": int, "window_start": int, "window_end": int, "n": int, "total": int, "high": int}
            ),
        )
        windows(stream, TumblingEventTimeWindows.of(100)).uid("windows").sink_to(sink.build()).uid("out")

    settings = {"execution.checkpointing.dir": str(tmp_path / "chk"), "execution.checkpointing.interval": "50 ms"}
    env = environment(1, settings=settings)
    build(env)
    job = env.execute_async()
    while not visible(tmp_path / "out"):
        job.get_job_status().result()
    savepoint = job.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    job.wait()
    (tmp_path / "all" / "1.parquet").rename(folder / "1.parquet")
    env = environment(
        3, settings={**settings, "execution.state-recovery.path": savepoint, "state.backend.type": "rocksdb"}
    )
    build(env)
    job = env.execute_async()
    wanted = expected(100, 100)
    before_the_end = [w for w in wanted if w[2] <= max(at for _, _, at in BIDS) - 51]
    while len(written(tmp_path / "out")) < len(before_the_end):
        job.get_job_status().result()
    job.stop_with_savepoint(True, str(tmp_path / "savepoints")).result()
    job.wait()
    assert written(tmp_path / "out") == wanted


def test_late_columns_go_to_the_side(tmp_path: Path) -> None:
    env = environment(1)
    pq.write_table(pa.table({"auction": [1, 1], "price": [1, 2], "at": [500, 510]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"auction": [1, 1], "price": [3, 4], "at": [20, 900]}), tmp_path / "2.parquet")
    late = OutputTag("late")
    window = bids(env, str(tmp_path)).key_by("auction").window(TumblingEventTimeWindows.of(100))
    result = window.side_output_late_data(late).select(lit(1).count.alias("n"))
    assert collected(result.get_side_output(late)) == [(1, 3, 20)]


def test_what_columns_do_not_do_is_said(tmp_path: Path) -> None:
    stream = bids(environment(1), parquet(tmp_path / "in"))
    count = lit(1).count
    with pytest.raises(TypeError, match="key_by"):
        stream.key_by(lambda r: r.auction).window(TumblingEventTimeWindows.of(1)).select(count)
    keyed = stream.key_by("auction")
    with pytest.raises(NotImplementedError, match="TumblingProcessingTimeWindows"):
        keyed.window(TumblingProcessingTimeWindows.of(1)).select(count)
    with pytest.raises(NotImplementedError, match="do not support triggers"):
        keyed.window(TumblingEventTimeWindows.of(1)).trigger(CountTrigger.of(1)).select(count)
    with pytest.raises(NotImplementedError, match="or allowed lateness"):
        keyed.window(TumblingEventTimeWindows.of(1)).allowed_lateness(5).select(count)
    with pytest.raises(TypeError, match="not an aggregate"):
        keyed.window(TumblingEventTimeWindows.of(1)).select(col("price"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="distinct names"):
        keyed.window(TumblingEventTimeWindows.of(1)).select(count, count)
    with pytest.raises(ValueError, match="distinct names"):
        stream.select("price", "price")
    with pytest.raises(ValueError, match="hands over arrow, pandas, polars"):
        stream.map_batches(lambda b: b, format="numpy")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="column names"):
        stream.key_by(())


def test_timestamps_may_be_moments_or_numbers_but_must_be_there(tmp_path: Path) -> None:
    moments = pa.array([10, 20], pa.timestamp("us"))
    pq.write_table(pa.table({"auction": [1, 1], "price": [1, 2], "at": moments}), tmp_path / "1.parquet")
    stream = windows(bids(environment(1), str(tmp_path)), TumblingEventTimeWindows.of(100))
    assert collected(stream) == [(1, 0, 100, 2, 3, 2)]
    pq.write_table(pa.table({"auction": [1], "price": [1], "at": pa.array([None], pa.int64())}), tmp_path / "1.parquet")
    with pytest.raises(Exception, match="bids"):
        collected(windows(bids(environment(1), str(tmp_path)), TumblingEventTimeWindows.of(100)))
