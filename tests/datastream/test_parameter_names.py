"""Programs that name every argument: the API takes PyFlink's names of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.datastream.environments import local_environment

from penstock.codecs.serialization import ByteArraySchema, RowFieldExtractorSchema
from penstock.common import (
    Configuration,
    DeserializationSchema,
    Duration,
    Encoder,
    OutputTag,
    Row,
    SerializationSchema,
    SimpleStringSchema,
    Time,
    TimestampAssigner,
    Types,
    WatermarkStrategy,
)
from penstock.connectors.collect import DiscardingSink
from penstock.datastream import (
    BroadcastConnectedStream,
    BroadcastStream,
    CheckpointingMode,
    ConnectedStreams,
    DataStream,
    DataStreamSink,
    KeyedStream,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    WindowedStream,
)
from penstock.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    FileSourceBuilder,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
)
from penstock.datastream.connectors.hybrid_source import HybridSource, HybridSourceBuilder
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.data_stream import AllWindowedStream, CachedDataStream
from penstock.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from penstock.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from penstock.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from penstock.datastream.state import MapStateDescriptor, StateTtlConfig, ValueStateDescriptor
from penstock.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)

PAIR = Types.TUPLE(field_types=[Types.STRING(), Types.INT()])
EVENTS = [("a", 1), ("b", 2), ("a", 3), ("b", 14)]  # (key, number and event time in ms)
LATE = OutputTag(tag_id="late", type_info=PAIR)


def collected(stream: DataStream) -> list[Any]:
    with stream.execute_and_collect(job_execution_name="collected", limit=None) as results:  # type: ignore[union-attr]
        return sorted(results)


# --- functions, each method with PyFlink's parameters -----------------------------------------------------------------


class Key(KeySelector):
    def get_key(self, value: Any) -> Any:
        return value[0]


class Double(MapFunction):
    def map(self, value: Any) -> Any:
        return value[0], value[1] * 2


class Repeat(FlatMapFunction):
    def flat_map(self, value: Any) -> Iterable[Any]:
        return [value] * value[1]


class Small(FilterFunction):
    def filter(self, value: Any) -> bool:
        return bool(value[1] < 3)


class Add(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1[0], value1[1] + value2[1]


class Total(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> Any:
        return accumulator + value[1]

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Apply(WindowFunction[Any, Any, str, TimeWindow]):
    def apply(self, key: str, window: TimeWindow, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(key, window.start, sorted(inputs))]


class Process(ProcessWindowFunction[Any, Any, str, TimeWindow]):
    def process(self, key: str, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        yield key, context.window().start, sorted(elements)


class ApplyAll(AllWindowFunction[Any, Any, TimeWindow]):
    def apply(self, window: TimeWindow, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(window.start, sorted(inputs))]


class ProcessAll(ProcessAllWindowFunction[Any, Any, TimeWindow]):
    def process(self, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        yield context.window().start, sorted(elements)


class Second(TimestampAssigner):
    def extract_timestamp(self, value: tuple[str, int], record_timestamp: int) -> int:
        return value[1]


class ToTheLast(Partitioner):
    def partition(self, key: Any, num_partitions: int) -> int:
        return num_partitions - 1


def events(env: StreamExecutionEnvironment) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(max_out_of_orderness=Duration.of_millis(millis=0))
    strategy = strategy.with_timestamp_assigner(timestamp_assigner=Second())
    strategy = strategy.with_idleness(idle_timeout=Duration.of_minutes(minutes=1))
    stream = env.from_collection(collection=EVENTS, type_info=PAIR)
    return stream.assign_timestamps_and_watermarks(watermark_strategy=strategy)


def by_key(env: StreamExecutionEnvironment) -> KeyedStream:
    return events(env).key_by(key_selector=Key(), key_type=Types.STRING())


# --- the environment --------------------------------------------------------------------------------------------------


def test_an_environment_is_set_up_by_names() -> None:
    """A2, E1: settings, sources, execution."""
    configuration = Configuration(other=Configuration().set_string(key="execution.target", value="local"))
    env = StreamExecutionEnvironment.get_execution_environment(configuration=configuration)
    env.set_parallelism(parallelism=2).set_max_parallelism(max_parallelism=8)
    env.set_runtime_mode(execution_mode=RuntimeExecutionMode.STREAMING)
    env.enable_checkpointing(interval=1_000, mode=CheckpointingMode.EXACTLY_ONCE)
    env.get_config().set_auto_watermark_interval(interval=20).set_parallelism(parallelism=1)
    assert (env.get_parallelism(), env.get_max_parallelism(), env.get_checkpoint_interval()) == (1, 8, 1_000)
    source = env.from_source(
        source=NumberSequenceSource(start=1, end=3),
        watermark_strategy=WatermarkStrategy.no_watermarks(),
        source_name="numbers",
        type_info=Types.LONG(),
    )
    assert (source.get_name(), source.get_type()) == ("numbers", Types.LONG())
    older = env.add_source(source_func=NumberSequenceSource(4, 4), source_name="older", type_info=Types.LONG())
    assert collected(source.union(older)) == [1, 2, 3, 4]
    sink = env.from_collection(collection=[1]).sink_to(sink=DiscardingSink())
    assert isinstance(sink.name(name="nowhere").uid(uid="nowhere").set_parallelism(parallelism=1), DataStreamSink)
    assert "nowhere" in env.get_execution_plan()
    assert env.execute(job_name="named").get_net_runtime() >= 0
    env.from_collection([1]).add_sink(sink_func=DiscardingSink()).set_description(description="drops everything")
    assert env.execute_async(job_name="named").get_job_execution_result().result().get_net_runtime() >= 0


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [False, True], ids=["plain", "keyed"])
def test_transformations_take_their_function_by_name(keys: bool) -> None:
    """A2: `func` and `output_type`, on streams with keys and without."""

    def stream() -> Any:
        return by_key(local_environment()) if keys else events(local_environment())

    doubled = stream().map(func=Double(), output_type=PAIR)
    assert doubled.get_type() == PAIR
    assert collected(doubled) == sorted((key, 2 * n) for key, n in EVENTS)
    repeated = stream().flat_map(func=Repeat(), output_type=PAIR)
    assert collected(repeated) == sorted(event for event in EVENTS for _ in range(event[1]))
    assert collected(stream().filter(func=Small())) == [("a", 1), ("b", 2)]
    assert collected(stream().project(1)) == [(n,) for _, n in sorted(EVENTS, key=lambda e: e[1])]
    assert collected(stream().process(func=Late(), output_type=PAIR).get_side_output(output_tag=LATE)) == [("b", 14)]


class Late(KeyedProcessFunction, ProcessFunction):
    """Sends what is over 10 to a side output."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield (LATE, value) if value[1] > 10 else value


def test_operators_are_described_by_names() -> None:
    """A2: name, uid, description, parallelism and bounds of an operator, in the plan."""
    env = local_environment(2)
    stream = events(env).rebalance().map(func=Double()).name(name="double").uid(uid="d")
    stream = stream.set_parallelism(parallelism=2).set_max_parallelism(max_parallelism=4)
    stream = stream.set_description(description="twice as much")
    assert stream.get_name() == "double"
    assert "twice as much" in env.get_execution_plan()
    assert collected(stream) == sorted((key, 2 * n) for key, n in EVENTS)
    moved = events(local_environment(2)).partition_custom(partitioner=ToTheLast(), key_selector=Key())
    assert collected(moved.map(Double())) == sorted((key, 2 * n) for key, n in EVENTS)


@pytest.mark.parametrize(
    ("method", "parameter", "last"),
    [
        ("sum", "position_to_sum", [("a", 4), ("b", 16)]),
        ("min", "position_to_min", [("a", 1), ("b", 2)]),
        ("max", "position_to_max", [("a", 3), ("b", 14)]),
        ("min_by", "position_to_min_by", [("a", 1), ("b", 2)]),
        ("max_by", "position_to_max_by", [("a", 3), ("b", 14)]),
    ],
)
def test_aggregates_of_keys_take_their_field_by_name(method: str, parameter: str, last: list[Any]) -> None:
    """A2: the last value of each key."""
    aggregated = list(getattr(by_key(local_environment()), method)(**{parameter: 1}).execute_and_collect())
    assert sorted(dict(aggregated).items()) == last
    kind = KeyedStream.AccumulateType
    assert kind[method.upper()] in (kind.SUM, kind.MIN, kind.MAX, kind.MIN_BY, kind.MAX_BY)


def test_keys_are_folded_and_chosen_by_names() -> None:
    """A2: reduce, and another key for a stream with keys."""
    assert dict(by_key(local_environment()).reduce(func=Add()).execute_and_collect()) == {"a": 4, "b": 16}
    by_parity = by_key(local_environment()).key_by(key_selector=lambda value: value[1] % 2, key_type=Types.INT())
    assert isinstance(by_parity, KeyedStream)
    summed = by_parity.map(lambda value: value).key_by(lambda value: value[1] % 2).reduce(func=Add())
    assert sorted(n for _, n in summed.execute_and_collect()) == [1, 2, 4, 16]


class Both(CoMapFunction, CoFlatMapFunction, CoProcessFunction, BroadcastProcessFunction):  # type: ignore[misc]
    """Records of the first stream, and those of the second one backwards."""

    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return value[::-1]

    def flat_map1(self, value: Any) -> Any:
        yield value

    def flat_map2(self, value: Any) -> Any:
        yield value[::-1]

    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_element2(self, value: Any, ctx: Any) -> Any:
        yield value[::-1]

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(state_descriptor=RULES).put(key=value, value=len(value))
        yield value[::-1]


RULES = MapStateDescriptor(name="rules", key_type_info=Types.STRING(), value_type_info=Types.INT())


def test_streams_are_connected_by_names() -> None:
    """A2, D2: connected with a stream, with keys of both, and with a broadcast one."""
    for method in ("map", "flat_map", "process"):
        env = local_environment()
        connected = env.from_collection(["ab", "cd"]).connect(ds=env.from_collection(["ef"]))
        assert isinstance(connected, ConnectedStreams)
        assert collected(getattr(connected, method)(func=Both(), output_type=Types.STRING())) == ["ab", "cd", "fe"]
        with_keys = connected.key_by(key_selector1=len, key_selector2=len, key_type=Types.INT())
        if method != "process":
            assert collected(getattr(with_keys, method)(func=Both())) == ["ab", "cd", "fe"]
    env = local_environment()
    rules = env.from_collection(["ef"]).broadcast(broadcast_state_descriptor=RULES)
    assert isinstance(rules, BroadcastStream)
    beside = env.from_collection(["ab"]).connect(ds=rules)
    assert isinstance(beside, BroadcastConnectedStream)
    assert collected(beside.process(func=Both(), output_type=Types.STRING())) == ["ab", "fe"]


# --- windows ----------------------------------------------------------------------------------------------------------


def test_windows_of_keys_take_their_functions_by_name() -> None:
    """C1: every form, with the trigger, the lateness and the side output named too."""

    def windows() -> WindowedStream:
        made = by_key(local_environment()).window(
            window_assigner=TumblingEventTimeWindows.of(size=Time.milliseconds(10))
        )
        assert isinstance(made, WindowedStream)
        return made.allowed_lateness(time_ms=0).side_output_late_data(output_tag=LATE)

    whole = [("a", 0, [("a", 1), ("a", 3)]), ("b", 0, [("b", 2)]), ("b", 10, [("b", 14)])]
    summed = [("a", 0, [("a", 4)]), ("b", 0, [("b", 2)]), ("b", 10, [("b", 14)])]
    totals = [("a", 0, [4]), ("b", 0, [2]), ("b", 10, [14])]
    assert collected(windows().reduce(reduce_function=Add())) == [("a", 4), ("b", 2), ("b", 14)]
    for function in (Apply(), Process()):
        assert collected(windows().reduce(reduce_function=Add(), window_function=function)) == summed
        aggregated = windows().aggregate(
            aggregate_function=Total(),
            window_function=function,
            accumulator_type=Types.INT(),
            output_type=Types.PICKLED_BYTE_ARRAY(),
        )
        assert collected(aggregated) == totals
    assert collected(windows().apply(window_function=Apply(), output_type=PAIR)) == whole
    assert collected(windows().process(process_window_function=Process(), output_type=PAIR)) == whole
    counted = by_key(local_environment()).count_window(size=2, slide=0).reduce(reduce_function=Add())
    assert collected(counted) == [("a", 4), ("b", 16)]
    triggered = windows().trigger(trigger=PurgingTrigger.of(nested_trigger=CountTrigger.of(window_size=1)))
    assert collected(triggered.reduce(Add())) == EVENTS_SORTED


EVENTS_SORTED = sorted(EVENTS)


def test_windows_of_all_records_take_their_functions_by_name() -> None:
    """C1: the same without keys."""

    def windows() -> AllWindowedStream:
        made = events(local_environment()).window_all(
            window_assigner=SlidingEventTimeWindows.of(size=Time.milliseconds(10), slide=Time.milliseconds(10))
        )
        assert isinstance(made, AllWindowedStream)
        return made.allowed_lateness(time_ms=0).side_output_late_data(output_tag=LATE)

    whole = [(0, [("a", 1), ("a", 3), ("b", 2)]), (10, [("b", 14)])]
    assert collected(windows().reduce(reduce_function=Add())) == [("a", 6), ("b", 14)]
    assert collected(windows().reduce(reduce_function=Add(), window_function=ApplyAll(), output_type=PAIR)) == [
        (0, [("a", 6)]),
        (10, [("b", 14)]),
    ]
    aggregated = windows().aggregate(
        aggregate_function=Total(), window_function=ProcessAll(), accumulator_type=Types.INT(), output_type=PAIR
    )
    assert collected(aggregated) == [(0, [6]), (10, [14])]
    assert collected(windows().apply(window_function=ApplyAll(), output_type=PAIR)) == whole
    assert collected(windows().process(process_window_function=ProcessAll(), output_type=PAIR)) == whole
    triggered = windows().trigger(trigger=PurgingTrigger(nested_trigger=CountTrigger(window_size=1)))
    assert collected(triggered.reduce(Add())) == EVENTS_SORTED


def test_a_stream_is_printed_by_names(capsys: pytest.CaptureFixture[str]) -> None:
    """A2: lines begin with the identifier."""
    env = local_environment()
    env.from_collection(collection=[1]).print(sink_identifier="numbers")
    env.execute()
    assert capsys.readouterr().out == "numbers> 1\n"


def test_a_job_is_saved_and_stopped_by_names(tmp_path: Path) -> None:
    """H1: savepoints of a job that runs, the last of which ends it."""
    env = local_environment()
    env.add_source(source_func=NumberSequenceSource(start=0, end=10**12)).sink_to(sink=DiscardingSink())
    job = env.execute_async(job_name="endless")
    saved = job.trigger_savepoint(savepoint_directory=str(tmp_path)).result(60)
    last = job.stop_with_savepoint(advance_to_end_of_event_time=False, savepoint_directory=str(tmp_path)).result(60)
    assert saved != last
    assert {Path(saved).parent, Path(last).parent} == {tmp_path}
    assert Path(saved).is_dir()
    assert Path(last).is_dir()


def test_session_windows_by_names() -> None:
    """C1: a gap, or one that each record tells."""
    gap = by_key(local_environment()).window(EventTimeSessionWindows.with_gap(size=Time.milliseconds(5)))
    told = by_key(local_environment()).window(EventTimeSessionWindows.with_dynamic_gap(extractor=lambda value: 5))
    for windows in (gap, told):
        assert collected(windows.apply(Apply())) == [
            ("a", 1, [("a", 1), ("a", 3)]),
            ("b", 2, [("b", 2)]),
            ("b", 14, [("b", 14)]),
        ]


# --- state ------------------------------------------------------------------------------------------------------------


class Counted(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        ttl = StateTtlConfig.new_builder(ttl=Time.hours(hours=1))
        ttl.set_update_type(update_type=StateTtlConfig.UpdateType.OnCreateAndWrite)
        ttl.set_state_visibility(state_visibility=StateTtlConfig.StateVisibility.NeverReturnExpired)
        ttl.cleanup_incrementally(cleanup_size=2, run_cleanup_for_every_record=False)
        declared = ValueStateDescriptor(name="count", value_type_info=Types.INT())
        declared.enable_time_to_live(ttl_config=ttl.build())
        self.count = runtime_context.get_state(state_descriptor=declared)
        self.seen = runtime_context.get_map_state(state_descriptor=RULES)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update(value=(self.count.value() or 0) + 1)
        self.seen.put(key=value[0], value=value[1])
        assert self.seen.contains(key=value[0])
        self.seen.put_all(dict_value={"x": 1})
        self.seen.remove(key="x")
        yield value[0], self.count.value(), dict(self.seen.items())


def test_state_is_declared_and_used_by_names() -> None:
    """D1: descriptors, expiry, and the states themselves."""
    assert list(by_key(local_environment()).process(func=Counted()).execute_and_collect()) == [
        ("a", 1, {"a": 1}),
        ("b", 1, {"b": 2}),
        ("a", 2, {"a": 3}),
        ("b", 2, {"b": 14}),
    ]


# --- connectors and formats -------------------------------------------------------------------------------------------


def test_files_are_written_and_read_by_names(tmp_path: Path) -> None:
    """A2, G9: a sink of lines and a source of them, with every setting named."""
    env = local_environment(penstock__source__batch_records=1)
    builder = FileSink.for_row_format(
        base_path=str(tmp_path / "out"), encoder=Encoder.simple_string_encoder(charset_name="UTF-8")
    )
    assert isinstance(builder, FileSink.RowFormatBuilder)
    names = OutputFileConfig.builder()
    assert isinstance(names, OutputFileConfig.OutputFileConfigBuilder)
    config = names.with_part_prefix(prefix="lines").with_part_suffix(suffix=".txt").build()
    policy = RollingPolicy.default_rolling_policy(part_size=3, rollover_interval=60_000, inactivity_interval=60_000)
    hours = BucketAssigner.date_time_bucket_assigner(format_str="yyyy", timezone_id="UTC")
    builder = builder.with_output_file_config(output_file_config=config).with_rolling_policy(rolling_policy=policy)
    builder = builder.with_bucket_assigner(bucket_assigner=hours).with_bucket_check_interval(interval=60_000)
    env.from_collection(["one", "two", "three"], Types.STRING()).sink_to(sink=builder.build())
    env.execute()
    files = sorted((tmp_path / "out").rglob("lines*.txt"))
    assert sorted(file.read_text() for file in files) == ["one\n", "three\n", "two\n"]
    assert all(file.parent.name.isdigit() for file in files)
    lines = StreamFormat.text_line_format(charset_name="UTF-8")
    source = FileSource.for_record_stream_format(lines, *map(str, files))
    assert isinstance(source, FileSourceBuilder)
    read = env.from_source(source.process_static_file_set().build(), WatermarkStrategy.no_watermarks(), "lines")
    assert collected(read) == ["one", "three", "two"]


@pytest.mark.parametrize("builder", ["row", "bulk"])
def test_the_interval_of_checks_changes_no_file(builder: str, tmp_path: Path) -> None:
    """G9: limits by time are looked at with every batch, whatever interval a program asks for."""
    schema = CsvSchema.builder().add_string_column(name="word").build()
    written = []
    for interval in (None, 1, 10**9):
        path, env = str(tmp_path / str(interval)), local_environment()
        made: Any
        if builder == "row":
            made = FileSink.for_row_format(base_path=path, encoder=SimpleStringSchema())
        else:
            made = FileSink.for_bulk_format(base_path=path, writer_factory=CsvBulkWriters.for_schema(schema=schema))
            assert isinstance(made, FileSink.BulkFormatBuilder)
        assert isinstance(made, FileSink.BaseBuilder)
        if interval is not None:
            made = made.with_bucket_check_interval(interval=interval)
        env.from_collection(["a", "b"] if builder == "row" else [("a",), ("b",)]).sink_to(made.build())
        env.execute()
        written.append([file.read_text() for file in Path(path).rglob("*") if file.is_file()])
    assert written == [["a\nb\n"]] * 3


def test_sources_follow_each_other_by_names() -> None:
    """A2: a hybrid source."""
    builder = HybridSource.builder(first_source=NumberSequenceSource(start=0, end=2))
    assert isinstance(builder, HybridSourceBuilder)
    source = builder.add_source(source=NumberSequenceSource(start=10, end=11)).build()
    read = local_environment().from_source(source, WatermarkStrategy.no_watermarks(), "hybrid")
    assert collected(read) == [0, 1, 2, 10, 11]


def test_a_stream_is_cached_by_its_class() -> None:
    """A2: what `cache` gives is a stream that can be used as any other."""
    env = local_environment()
    cached = env.from_collection(collection=[1, 2]).map(func=lambda n: n + 1).cache()
    assert isinstance(cached, CachedDataStream)
    for _ in range(2):
        assert collected(cached.filter(func=lambda n: n > 1)) == [2, 3]
    assert cached.cache() is cached
    assert cached.name(name="kept").get_name() == "kept"
    cached.invalidate()
    assert collected(cached) == [2, 3]
    env.close()


def test_messages_are_turned_into_rows_by_names() -> None:
    """A2: schemas of messages, each both ways."""
    row_type = Types.ROW_NAMED(field_names=["id", "name"], field_types=[Types.INT(), Types.STRING()])
    write = JsonRowSerializationSchema.builder()
    assert isinstance(write, JsonRowSerializationSchema.Builder)
    read = JsonRowDeserializationSchema.builder()
    assert isinstance(read, JsonRowDeserializationSchema.Builder)
    schemas = [(write.with_type_info(type_info=row_type).build(), read.type_info(type_info=row_type).build())]
    for serialization, deserialization in schemas:
        assert isinstance(serialization, SerializationSchema)
        assert isinstance(deserialization, DeserializationSchema)
        row = Row(id=1, name="a")
        assert deserialization.deserialize(serialization.serialize(row)) == row
    text = SimpleStringSchema(charset="UTF-8")
    assert (text.serialize("ü"), text.deserialize(b"\xc3\xbc")) == (b"\xc3\xbc", "ü")
    assert isinstance(text, SerializationSchema)
    assert isinstance(text, DeserializationSchema)
    assert ByteArraySchema().deserialize(ByteArraySchema().serialize(b"\x00")) == b"\x00"
    assert RowFieldExtractorSchema(field_index=1).serialize(Row(b"a", b"b")) == b"b"
    lines = CsvReaderFormat.for_schema(schema=CsvSchema.builder().add_number_column(name="n").build())
    assert lines.create_decoder(b"").decode(b"1\n2\n", True).values == [Row(n=1), Row(n=2)]
