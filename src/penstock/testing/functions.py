"""Creates operators and harnesses for user-defined functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.base.errors import WrongTypeError
from penstock.core.operators.base import StreamOperator
from penstock.core.operators.calls.async_wait import AsyncWaitOperator
from penstock.core.operators.keyed.keyed_reduce import KeyedReduceOperator
from penstock.core.operators.record.process import KeyedProcessOperator, ProcessOperator
from penstock.core.operators.record.stateless import FilterOperator, FlatMapOperator, MapOperator, method
from penstock.datastream.async_data_stream import is_asynchronous
from penstock.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ReduceFunction,
)
from penstock.testing.operator_harness import OneInputOperatorHarness


def operator_factory_for(function: Any, key_selector: Any = None) -> Callable[[], StreamOperator]:
    """Return a factory of the operator that runs a user-defined function; a plain callable is used as a map function.

    Asynchronous functions keep the order, have no timeout, and may have 100 calls in progress.

    Raises:
        TypeError: if a key selector is required and missing, or given and not accepted.
    """
    keyed = isinstance(function, KeyedProcessFunction | ReduceFunction)
    if keyed != (key_selector is not None):
        raise WrongTypeError(f"{type(function).__name__} {'needs a' if keyed else 'takes no'} key selector")
    if keyed:
        selector = method(key_selector, "get_key")
        operator = KeyedProcessOperator if isinstance(function, KeyedProcessFunction) else KeyedReduceOperator
        return partial(operator, function, selector)
    if isinstance(function, ProcessFunction):
        return partial(ProcessOperator, function)
    if isinstance(function, FlatMapFunction):
        return partial(FlatMapOperator, function)
    if isinstance(function, FilterFunction):
        return partial(FilterOperator, function)
    if is_asynchronous(function):
        return partial(AsyncWaitOperator, function, True, 0, 100)
    return partial(MapOperator, function)


def harness_for(function: Any, key_selector: Any = None, **arguments: Any) -> OneInputOperatorHarness:
    """Create a harness, not yet open, for a user-defined function.

    Args:
        function: a `KeyedProcessFunction`, `ReduceFunction`, `ProcessFunction`, `FlatMapFunction`, `FilterFunction`,
            `AsyncFunction` or `MapFunction`; a plain callable maps.
        key_selector: for keyed functions.
        **arguments: arguments of `OneInputOperatorHarness`, such as `parallelism`.
    """
    return OneInputOperatorHarness(operator_factory_for(function, key_selector), **arguments)
