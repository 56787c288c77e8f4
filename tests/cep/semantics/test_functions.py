"""What is done with matches and with partial matches whose time is over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tests.cep.operators import operator_factory, parse_events, select_key
from tests.cep.semantics.stages import begin, then

from penstock.cep import (
    CEP,
    PatternFlatSelectFunction,
    PatternFlatTimeoutFunction,
    PatternProcessFunction,
    PatternSelectFunction,
    PatternTimeoutFunction,
    RichPatternFlatSelectFunction,
    RichPatternSelectFunction,
)
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.datastream import OutputTag, StreamExecutionEnvironment
from penstock.testing import OneInputOperatorHarness

SIDE = OutputTag("side", Types.STRING())


def names(match: dict[str, list[Any]]) -> str:
    return " ".join(f"{name}={','.join(str(event.number) for event in events)}" for name, events in match.items())


def pattern() -> Any:
    return then(then(begin("a"), "followed_by", "b").one_or_more(), "followed_by", "c").within(10)


def pattern_stream(text: str) -> Any:
    config = Configuration()
    config.set_string("execution.target", "local")
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(1)
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda pair, _: pair[0])
    stream = (
        env.from_collection(parse_events(text)).assign_timestamps_and_watermarks(in_order).map(lambda pair: pair[1])
    )
    return CEP.pattern(stream.key_by(select_key), pattern())


def collected(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return list(results)


def test_a_match_has_its_stages_in_the_order_of_their_events() -> None:
    assert collected(pattern_stream("a b1 c").select(names, Types.STRING())) == ["a=0 b=1 c=2"]


def test_select_gives_one_record_a_match() -> None:
    class Select(PatternSelectFunction):
        def select(self, pattern: dict[str, list[Any]]) -> str:
            return names(pattern)

    assert sorted(collected(pattern_stream("a b b c").select(Select(), Types.STRING()))) == [
        "a=0 b=1 c=3",
        "a=0 b=1,2 c=3",
    ]


def test_flat_select_gives_any_number() -> None:
    class Select(PatternFlatSelectFunction):
        def flat_select(self, pattern: dict[str, list[Any]]) -> Iterable[int]:
            return [event.number for event in pattern["b"]] if len(pattern["b"]) > 1 else []

    assert sorted(collected(pattern_stream("a b b c").flat_select(Select(), Types.INT()))) == [1, 2]


def test_flat_select_takes_a_generator() -> None:
    def select(match: dict[str, list[Any]]) -> Iterator[int]:
        yield len(match["b"])

    assert sorted(collected(pattern_stream("a b b c").flat_select(select, Types.INT()))) == [1, 2]


def test_select_with_time_outs() -> None:
    class Timeout(PatternTimeoutFunction):
        def timeout(self, pattern: dict[str, list[Any]], timeout_timestamp: int) -> str:
            return f"{names(pattern)} at {timeout_timestamp}"

    stream = pattern_stream("a@3").select(
        names, Types.STRING(), timed_out_partial_matches_tag=SIDE, pattern_timeout_function=Timeout()
    )
    assert collected(stream.get_side_output(SIDE)) == ["a=0 at 13"]


def test_flat_select_with_time_outs() -> None:
    class Timeout(PatternFlatTimeoutFunction):
        def timeout(self, pattern: dict[str, list[Any]], timeout_timestamp: int) -> Iterator[str]:
            yield names(pattern)
            yield str(timeout_timestamp)

    stream = pattern_stream("a@3").flat_select(
        lambda match: [names(match)],
        Types.STRING(),
        timed_out_partial_matches_tag=SIDE,
        pattern_flat_timeout_function=Timeout(),
    )
    assert collected(stream.get_side_output(SIDE)) == ["a=0", "13"]


def test_process_match_may_yield_to_a_side_output() -> None:
    class Process(PatternProcessFunction):
        def process_match(self, match: dict[str, list[Any]], ctx: Any) -> Iterator[Any]:
            yield len(match["b"])
            yield SIDE, "yielded"
            ctx.output(SIDE, "put")

    stream = pattern_stream("a b c").process(Process(), Types.INT())
    both = stream.map(str, Types.STRING()).union(stream.get_side_output(SIDE))
    assert sorted(collected(both)) == ["1", "put", "yielded"]


def test_functions_are_opened_and_closed() -> None:
    calls: list[str] = []

    class Process(PatternProcessFunction):
        def open(self, runtime_context: Any) -> None:
            calls.append(f"open {runtime_context.get_index_of_this_subtask()}")

        def process_match(self, match: dict[str, list[Any]], ctx: Any) -> Iterable[Any]:
            return []

        def close(self) -> None:
            calls.append("close")

    harness = OneInputOperatorHarness(operator_factory(pattern(), Process()))
    harness.open()
    harness.close()
    assert calls == ["open 0", "close"]


def test_rich_functions_are_those_with_open_and_close() -> None:
    for rich, plain in (
        (RichPatternSelectFunction, PatternSelectFunction),
        (RichPatternFlatSelectFunction, PatternFlatSelectFunction),
    ):
        assert issubclass(rich, plain)
        assert callable(rich.open)
        assert callable(rich.close)


def test_the_context_of_a_match_knows_both_times() -> None:
    seen = []

    class Process(PatternProcessFunction):
        def process_match(self, match: dict[str, list[Any]], ctx: Any) -> Iterable[Any]:
            seen.append((ctx.timestamp(), ctx.current_processing_time()))
            return []

    harness = OneInputOperatorHarness(operator_factory(pattern(), Process()))
    harness.open()
    harness.advance_processing_time(77)
    for time, event in parse_events("a@1 b@2 c@3"):
        harness.process(event, time)
    harness.end()
    assert seen == [(3, 77)]
