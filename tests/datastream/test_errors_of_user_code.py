"""Errors of every kind of user code: the operator, what was called, the record, and only the user's own traceback."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.datastream.environments import collect, local_environment

from penstock.base.errors import UserFunctionError
from penstock.base.job import JobID
from penstock.base.watermark_strategy import TimestampAssigner, WatermarkGenerator, WatermarkStrategy
from penstock.codecs.serialization import Encoder
from penstock.connectors.file.buckets import BucketAssigner
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.functions import KeySelector, Partitioner, ProcessFunction
from penstock.runtime.connector import (
    Boundedness,
    Committer,
    InputStatus,
    Sink,
    SinkWriter,
    Source,
    SourceReader,
    SplitEnumerator,
)
from penstock.runtime.records import Batch

BAD = 30


class Oops(Exception):
    pass


def fails(value: Any, *_: Any) -> Any:
    if value == BAD:
        raise Oops("no thirties")
    return value


def wrong_call(*_: Any) -> Any:
    return JobID("no")


class Assigner(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(fails(value))


class Generator(WatermarkGenerator):
    def on_event(self, value: Any, timestamp_ms: int) -> int | None:  # type: ignore[override]
        return int(fails(value))

    def on_periodic_emit(self) -> int | None:  # type: ignore[override]
        return None


class Selector(KeySelector):
    def get_key(self, value: Any) -> Any:
        return fails(value)


class Dealer(Partitioner):
    def partition(self, key: Any, num_partitions: int) -> int:
        fails(key)
        return 0


class Encodes(Encoder[Any]):
    def __init__(self) -> None:
        pass

    def encode(self, value: Any, stream: Any) -> None:
        stream.write(str(fails(value)).encode())


class Buckets(BucketAssigner):
    def bucket_id(self, value: Any, *_: Any) -> str:
        return str(fails(value))


class Writer(SinkWriter[Any, Any]):
    def __init__(self, fails_in: str) -> None:
        self.fails_in = fails_in

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        if self.fails_in == "write_batch":
            for value in values:
                fails(value)

    def flush(self, end_of_input: bool) -> None:
        if self.fails_in == "flush":
            fails(BAD)

    def prepare_commit(self) -> list[Any]:
        return [BAD]


class Commits(Committer[Any]):
    def commit(self, committables: Sequence[Any]) -> None:
        fails(*committables)


class Writes(Sink[Any]):
    def __init__(self, fails_in: str) -> None:
        self.fails_in = fails_in

    def create_writer(self, context: Any) -> SinkWriter[Any, Any]:
        if self.fails_in == "create_writer":
            fails(BAD)
        return Writer(self.fails_in)

    def create_committer(self, context: Any) -> Committer[Any] | None:
        return Commits() if self.fails_in == "commit" else None


class Reader(SourceReader[Any, int]):
    def __init__(self, context: Any) -> None:
        self.context = context

    def start(self) -> None:
        pass

    def add_splits(self, splits: Sequence[int]) -> None:
        pass

    def no_more_splits(self) -> None:
        pass

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        return Batch([fails(BAD)])

    def snapshot_state(self, checkpoint_id: int) -> list[int]:
        return []


class Enumerator(SplitEnumerator[int]):
    def start(self) -> None:
        pass

    def handle_split_request(self, subtask_index: int) -> None:
        pass

    def add_splits_back(self, splits: Sequence[int], subtask_index: int) -> None:
        pass

    def snapshot_state(self, checkpoint_id: int) -> Any:
        return None


class Reads(Source[Any, int]):
    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(self, context: Any, restored: Any | None) -> SplitEnumerator[int]:
        return Enumerator()

    def create_reader(self, context: Any) -> SourceReader[Any, int]:
        return Reader(context)


NO_WATERMARKS = WatermarkStrategy.no_watermarks()
MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()
GENERATED = WatermarkStrategy.for_generator(Generator).with_timestamp_assigner(lambda value: 0)

#: what is added to a stream of 10, 20, 30, 40 -> what is called in the error
STEPS: dict[str, tuple[Callable[[Any, Path], Any], str]] = {
    "key selector": (lambda s, _: s.key_by(Selector()).reduce(max).name("mine"), "the key selector"),
    "key selector, windows": (
        lambda s, _: s.key_by(Selector()).count_window(2).reduce(max).name("mine"),
        "the key selector",
    ),
    "timestamp assigner": (
        lambda s, _: s.assign_timestamps_and_watermarks(MONOTONOUS.with_timestamp_assigner(Assigner())).name("mine"),
        "the timestamp assigner",
    ),
    "watermark generator": (
        lambda s, _: s.assign_timestamps_and_watermarks(GENERATED).name("mine"),
        "the watermark generator",
    ),
    "partitioner": (
        lambda s, _: s.partition_custom(Dealer(), abs).map(abs).set_parallelism(2).name("mine"),
        "the partitioner",
    ),
    "partitioner's key": (
        lambda s, _: s.partition_custom(lambda key, count: 0, Selector()).map(abs).set_parallelism(2).name("mine"),
        "the key selector",
    ),
    "encoder": (lambda s, path: s.sink_to(FileSink.for_row_format(str(path), Encodes()).build()), "the encoder"),
    "bucket assigner": (
        lambda s, path: s.sink_to(
            FileSink.for_row_format(str(path), Encoder.simple_string_encoder()).with_bucket_assigner(Buckets()).build()
        ),
        "the bucket assigner",
    ),
}


def catch_failure(env: Any) -> str:
    with pytest.raises(UserFunctionError) as caught:
        env.execute("job")
    text = str(caught.value)
    assert "Oops: no thirties" in text
    assert "/src/penstock/" not in text
    return text


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH", "MICRO_BATCH"])
@pytest.mark.parametrize("kind", STEPS)
def test_an_error_of_user_code_names_operator_call_and_record(kind: str, mode: str, tmp_path: Path) -> None:
    """A2: as for a process function: operator, record, what was called, and no line of the runtime."""
    step, called = STEPS[kind]
    env = local_environment(execution__runtime_mode=mode)
    ended = step(env.from_collection([10, 20, BAD, 40]), tmp_path)
    if "bucket" in kind or "encoder" in kind:
        ended.name("mine")
    text = catch_failure(env)
    assert text.startswith(f"operator 'mine', subtask 1/1, in {called}\nrecord: {BAD}\n")


@pytest.mark.parametrize("fails_in", ["write_batch", "flush", "create_writer", "commit"])
def test_an_error_of_a_sink_names_it(fails_in: str) -> None:
    """A2: whichever of its methods fails."""
    env = local_environment()
    env.from_collection([10, 20, BAD]).sink_to(Writes(fails_in)).name("mine")
    text = catch_failure(env)
    assert text.startswith("operator 'mine', subtask 1/1, in the sink\n")
    if fails_in == "write_batch":
        assert "record: one of 3, the first 10\n" in text


@pytest.mark.parametrize("fails_in", ["write_batch", "create_writer", "read"])
def test_a_wrong_call_of_penstock_in_user_code_is_its_error(fails_in: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A2: the error has the line that made the call, as for the plain Python class."""
    monkeypatch.setattr(sys.modules[__name__], "fails", wrong_call)
    env = local_environment()
    if fails_in == "read":
        env.from_source(Reads(), NO_WATERMARKS, "mine").print()
    else:
        env.from_collection([10]).sink_to(Writes(fails_in)).name("mine")
    with pytest.raises(UserFunctionError) as caught:
        env.execute("job")
    text = str(caught.value)
    assert text.startswith("operator 'mine', subtask 1/1, in the ")
    assert "in wrong_call" in text
    assert text.endswith("WrongValueError: a job id is 32 lower-case hexadecimal digits, not 'no'")


def test_an_error_of_a_source_names_it() -> None:
    """A2: what a reader raises."""
    env = local_environment()
    env.from_source(Reads(), NO_WATERMARKS, "mine").print()
    assert catch_failure(env).startswith("operator 'mine', subtask 1/1, in the source\n")


def test_an_error_of_a_generating_function_names_the_index() -> None:
    """A2: there is no record yet, but the number that it is made of."""
    env = local_environment()
    source: Any = DataGeneratorSource(fails, 100)
    env.from_source(source, NO_WATERMARKS, "mine").print()
    assert catch_failure(env).startswith(f"operator 'mine', subtask 1/1, in the generator function\nrecord: {BAD}\n")


# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("mode", ["STREAMING", "BATCH", "MICRO_BATCH"])
@pytest.mark.parametrize("key", [[1], {"a": 1}, {1}, (1, [2])], ids=str)
def test_keys_without_hash_are_refused_with_the_remedy(key: Any, mode: str, parallelism: int) -> None:
    """A2, D4: whatever the operator, execution mode and parallelism; for the first time at the record at which."""
    numbers = local_environment(parallelism, execution__runtime_mode=mode).from_collection([1, 2])
    for keyed in (numbers.key_by(lambda value: key).reduce(max), numbers.key_by(lambda value: key).count_window(1)):
        stream = keyed if hasattr(keyed, "name") else keyed.reduce(max)
        with pytest.raises(UserFunctionError) as caught:
            collect(stream.name("mine"))
        text = str(caught.value)
        assert text.startswith("operator 'mine'")
        assert "in the key selector" in text
        assert f"returned {key!r} ({type(key).__name__}), which cannot be a key" in text
        assert text.count("the key selector must return") == 1
        assert "; convert a " in text
        assert "record: 1\n" in text if parallelism == 1 else "record: " in text


def test_a_key_without_hash_among_others_is_found() -> None:
    """A2: not only the last key of a batch is refused in these words."""
    numbers = local_environment().from_collection([1, 2, 3])
    with pytest.raises(UserFunctionError, match=r"in the key selector\nrecord: 2\n.*cannot be a key"):
        collect(numbers.key_by(lambda value: [value] if value == 2 else value).reduce(max))


# --- timestamps -----------------------------------------------------------------------------------------------------

MOMENT = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
WRONG_TIMES: dict[str, tuple[Any, str]] = {
    "None": (None, "filter"),
    "float": (1.5, "int(x)"),
    "numpy float": (np.float64(1.5), "int(x)"),
    "datetime": (MOMENT, "int(x.timestamp() * 1000)"),
    "date": (MOMENT.date(), "int("),
    "numpy datetime": (np.datetime64("2026-01-02"), "int("),
    "str": ("5", "int(x)"),
}


def timed(strategy: WatermarkStrategy, assigner: Any, at_source: bool, **options: Any) -> Any:
    env = local_environment(**options)
    assigned = strategy.with_timestamp_assigner(assigner)
    if at_source:
        source: Any = DataGeneratorSource(lambda index: index, 3)
        return env.from_source(source, assigned, "mine")
    return env.from_collection([0, 1, 2]).assign_timestamps_and_watermarks(assigned).name("mine")


@pytest.mark.parametrize("at_source", [False, True])
@pytest.mark.parametrize("strategy", [MONOTONOUS, NO_WATERMARKS, GENERATED], ids=["bounded", "none", "custom"])
@pytest.mark.parametrize("wrong", WRONG_TIMES)
def test_a_timestamp_that_is_no_int_is_refused_where_it_was_made(
    wrong: str, strategy: WatermarkStrategy, at_source: bool
) -> None:
    """A2, C2: with the record, what was returned, and how to make milliseconds of it."""
    value, remedy = WRONG_TIMES[wrong]
    stream = timed(strategy, lambda record: value if record == 1 else 5, at_source)
    with pytest.raises(UserFunctionError) as caught:
        collect(stream)
    text = str(caught.value)
    assert text.startswith("operator 'mine', subtask 1/1, in the timestamp assigner\nrecord: 1\n")
    assert f"returned {value!r} ({type(value).__name__})" in text
    assert "milliseconds since the epoch" in text
    assert remedy in text


@pytest.mark.parametrize("make", [np.int64, np.int32, int, bool])
def test_whole_numbers_of_any_class_are_timestamps(make: Any) -> None:
    """C2: those of numpy become plain ones."""
    stream = timed(MONOTONOUS, lambda record: make(record % 2), False)

    class Times(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value, ctx.timestamp(), type(ctx.timestamp())

    assert collect(stream.process(Times())) == [(0, 0, int), (1, 1, int), (2, 0, int)]


def test_a_watermark_that_is_no_int_is_refused() -> None:
    """A2, C2: a watermark generator gives ints too."""

    class Floats(WatermarkGenerator):
        def on_event(self, value: Any, timestamp_ms: int) -> Any:  # type: ignore[override]
            return 1.5

        def on_periodic_emit(self) -> int | None:  # type: ignore[override]
            return None

    with pytest.raises(
        UserFunctionError, match=r"in the watermark generator\nrecord: 0\n(.|\n)*returned 1.5 \(float\)"
    ):
        collect(timed(WatermarkStrategy.for_generator(Floats), lambda record: record, False))


class NoPeriodic(WatermarkGenerator):
    def on_event(self, value: Any, timestamp_ms: int, output: Any) -> None:
        output.emit_watermark(timestamp_ms)


class NeitherMethod:
    pass


def no_generator() -> Any:
    raise Oops("no generator")


@pytest.mark.parametrize(
    ("factory", "problem"),
    [
        (no_generator, "Oops: no generator"),
        (NoPeriodic, "on_periodic_emit"),
        (NeitherMethod, r"NeitherMethod.*has no method on_event\(\) and no method on_periodic_emit\(\)"),
        (lambda: None, r"None.*has no method on_event"),
    ],
    ids=["raises", "abstract", "other class", "None"],
)
@pytest.mark.parametrize("in_source", [False, True], ids=["stream", "source"])
@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH", "BATCH"])
def test_a_watermark_generator_that_cannot_be_made(mode: str, in_source: bool, factory: Any, problem: str) -> None:
    """A2, C2: the error is the user's own, with the operator's name."""
    strategy = WatermarkStrategy.for_generator(factory).with_timestamp_assigner(lambda value, _: value)
    env = local_environment(execution__runtime_mode=mode)
    if in_source:
        stream = env.from_source(DataGeneratorSource(int, 3), strategy, "mine")
    else:
        stream = env.from_collection([1, 2]).assign_timestamps_and_watermarks(strategy).name("mine")
    with pytest.raises(
        UserFunctionError, match=rf"(?s)operator 'mine', subtask 1/1, in the watermark generator\n.*{problem}"
    ):
        collect(stream)
