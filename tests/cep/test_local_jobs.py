"""Programs that look for patterns, on the local target in all execution modes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import pytest

from penstock.cep import CEP, MalformedPatternException, Pattern, PatternProcessFunction, TimedOutPartialMatchHandler
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from penstock.datastream.closeable_iterator import CloseableIterator

TIMED_OUT = OutputTag("timed out")
EVENTS = [("k", "a", 1), ("j", "a", 2), ("k", "b", 3), ("k", "a", 5), ("j", "b", 20)]


class TimeOfEvent(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[2])


class Times(PatternProcessFunction, TimedOutPartialMatchHandler):
    def process_match(self, match: dict[str, list[Any]], ctx: Any) -> Iterator[Any]:
        yield [event[2] for events in match.values() for event in events], ctx.timestamp()

    def process_timed_out_match(self, match: dict[str, list[Any]], ctx: Any) -> Iterator[Any]:
        yield TIMED_OUT, ([event[2] for event in match["a"]], ctx.timestamp())


def pattern() -> Pattern:
    first = Pattern.begin("a").where(lambda event: event[1] == "a")
    return first.followed_by("b").where(lambda event: event[1] == "b").within(10)


def environment(mode: str) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    configuration.set_string("execution.runtime-mode", mode)
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def collected(stream: DataStream) -> list[Any]:
    with closing(cast(CloseableIterator, stream.execute_and_collect())) as found:
        return list(found)


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH", "BATCH"])
def test_keys_have_matches_of_their_own(mode: str) -> None:
    env = environment(mode)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOfEvent())
    stream = env.from_collection(EVENTS).assign_timestamps_and_watermarks(strategy)
    keyed = CEP.pattern(stream.key_by(lambda event: event[0]), pattern()).process(Times())
    late = keyed.get_side_output(TIMED_OUT)
    assert sorted(collected(keyed.union(late))) == [([1, 3], 3), ([2], 12), ([5], 15)]


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_a_stream_without_keys_is_one(mode: str) -> None:
    env = environment(mode).set_parallelism(2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOfEvent())
    stream = env.from_collection(EVENTS).assign_timestamps_and_watermarks(strategy)
    found = CEP.pattern(stream, pattern()).select(
        lambda match: [events[0][2] for events in match.values()],
        timed_out_partial_matches_tag=TIMED_OUT,
        pattern_timeout_function=lambda match, timestamp: (match["a"][0][2], timestamp),
    )
    results = collected(found.union(found.get_side_output(TIMED_OUT)))
    assert sorted(results, key=str) == [(5, 15), [1, 3], [2, 3]]


def test_processing_time_needs_no_timestamps() -> None:
    stream = environment("STREAMING").from_collection(EVENTS)
    matches = CEP.pattern(stream.key_by(lambda event: event[0]), pattern()).in_processing_time()
    found = matches.flat_select(lambda match: [event[2] for event in match["b"]], Types.INT())
    assert sorted(collected(found)) == [3, 20]


def test_what_is_no_pattern_is_refused() -> None:
    stream = environment("STREAMING").from_collection(EVENTS)
    with pytest.raises(TypeError, match="expected a Pattern"):
        CEP.pattern(stream, "a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="in a DataStream or a KeyedStream"):
        CEP.pattern([1], pattern())  # type: ignore[arg-type]
    with pytest.raises(MalformedPatternException, match="two stages"):
        CEP.pattern(stream, pattern().next("a"))
    with pytest.raises(TypeError, match="need both"):
        CEP.pattern(stream, pattern()).select(lambda match: 1, timed_out_partial_matches_tag=TIMED_OUT)
    with pytest.raises(TypeError, match="it must return one value"):
        CEP.pattern(stream, pattern()).select(Times().process_match)
