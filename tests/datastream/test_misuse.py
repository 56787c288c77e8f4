"""Functions that do not fit where a program puts them are refused there, in words that say what to do instead."""

from __future__ import annotations

from typing import Any

import pytest
from tests.datastream.environments import collect, local_environment

from penstock.base.errors import MisuseError, UnknownMethodError, UserFunctionError
from penstock.base.restart_strategy import RestartStrategies
from penstock.datastream.functions import KeyedCoProcessFunction, KeyedProcessFunction, ProcessFunction
from penstock.datastream.join_functions import CoGroupFunction, FlatJoinFunction
from penstock.datastream.window import CountTrigger, GlobalWindows


class Keyed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


class KeyedCo(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield value

    process_element2 = process_element1


def generates(*values: Any) -> Any:
    yield from values


async def awaits(*values: Any) -> Any:
    return values


def numbers() -> Any:
    return local_environment().from_collection([1, 2])


def test_a_keyed_process_function_on_a_stream_without_key_is_refused_when_the_program_is_built() -> None:
    """A1: not when the first record comes; the error says key_by."""
    with pytest.raises(MisuseError, match=r"Keyed is a KeyedProcessFunction.*no key.*key_by"):
        numbers().process(Keyed())
    with pytest.raises(MisuseError, match=r"KeyedCo is a KeyedCoProcessFunction.*key_by"):
        numbers().connect(numbers()).process(KeyedCo())


BUILT: dict[str, Any] = {
    "map": lambda function: numbers().map(function),
    "keyed map": lambda function: numbers().key_by(abs).map(function),
    "filter": lambda function: numbers().filter(function),
    "get_key": lambda function: numbers().key_by(function),
    "reduce": lambda function: numbers().key_by(abs).reduce(function),
    "window reduce": lambda function: numbers().key_by(abs).count_window(2).reduce(function),
}


@pytest.mark.parametrize("function", [generates, awaits])
@pytest.mark.parametrize("where", BUILT)
def test_a_generator_function_where_one_value_is_wanted_is_refused_when_the_program_is_built(
    where: str, function: Any
) -> None:
    """A1: `yield` in a map's function is a slip; it is told where it was made."""
    with pytest.raises(MisuseError, match=f"{function.__name__}, given to {where.split()[-1]}"):
        BUILT[where](function)


class Pairs(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        return value, "x"


def test_a_returned_tuple_fails_the_job_at_once_with_operator_and_record() -> None:
    """A2, G8: another attempt would meet the same, so there is none."""
    env = local_environment(execution__checkpointing__interval=10)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1000, 1))
    stream = env.from_collection([7]).process(Pairs()).name("pairs")
    with pytest.raises(UserFunctionError) as failure:
        collect(stream)
    text = str(failure.value)
    assert "operator 'pairs'" in text
    assert "record: 7" in text
    assert "process_element() returned (7, 'x') (tuple): it must yield its results or return a list" in text
    assert "runtime/operators" not in text


class Groups(CoGroupFunction):
    def co_group(self, first: Any, second: Any) -> Any:
        return (len(first), len(second))


class Joins(FlatJoinFunction):
    def join(self, first: Any, second: Any) -> Any:
        return (first, second)


@pytest.mark.parametrize(("method", "function"), [("co_group", Groups()), ("join", Joins())])
def test_the_functions_of_joins_are_asked_too(method: str, function: Any) -> None:
    """A2: what they return is not taken apart either, and it is their method that is named."""
    one = local_environment().from_collection([1])
    joined = getattr(one, method)(one).where(abs).equal_to(abs)
    stream = joined.window(GlobalWindows.create()).trigger(CountTrigger.of(2)).apply(function)
    with pytest.raises(UserFunctionError, match=rf"{method}\(\) returned \(1, 1\) \(tuple\)"):
        collect(stream)


KEYED_METHODS = {
    "window": r"key_by\(…\).window\(…\).*window_all\(windows\)",
    "count_window": r"count_window_all\(size\)",
    "reduce": r"key_by\(…\).reduce\(…\)",
    "sum": r"window_all\(windows\).sum\(field\)",
    "max_by": r"window_all\(windows\).max_by\(field\)",
    "interval_join": r"key_by\(…\).interval_join\(…\)",
}


@pytest.mark.parametrize("name", KEYED_METHODS)
def test_methods_of_keyed_streams_say_that_they_need_a_key(name: str) -> None:
    """A1: the error says how to get a key, and how to do without; other names are unknown as usual."""
    stream: Any = numbers()
    with pytest.raises(UnknownMethodError, match=KEYED_METHODS[name]):
        getattr(stream, name)(1)
    assert not hasattr(stream, name)
    assert hasattr(stream.key_by(abs), name)
    with pytest.raises(AttributeError, match="'DataStream' object has no attribute 'windows'"):
        stream.windows(1)
