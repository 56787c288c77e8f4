"""Measures how long a function's accesses to its keyed state take (Flink's `state.latency-track.*`).

An access is a call of a method of a state that a function holds: `value()`, `add(…)`, `put(…)`. Operators process their
own state, such as a window's contents, in whole batches, which are not accesses. Only one of several calls is timed. A
tracked state has a class of its own, made when it is opened; other states are not affected.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Final, TypeVar

from penstock.base.histograms import HistogramFigures, SlidingHistogram
from penstock.state.states import AggregatingState, ListState, MapState, ReducingState, State, ValueState

S = TypeVar("S", bound=State)

_APPENDING: Final = {"get": "Get", "add": "Add"}
#: by kind of state, its name in metrics, and that of each method
_NAMES: Final[dict[type[State], tuple[str, dict[str, str]]]] = {
    ValueState: ("valueState", {"value": "Get", "update": "Update"}),
    ListState: ("listState", {**_APPENDING, "add_all": "AddAll", "update": "Update"}),
    MapState: (
        "mapState",
        {
            "get": "Get",
            "__getitem__": "Get",
            "put": "Put",
            "put_all": "PutAll",
            "remove": "Remove",
            "contains": "Contains",
            "is_empty": "IsEmpty",
            "items": "EntriesInit",
            "keys": "KeysInit",
            "values": "ValuesInit",
        },
    ),
    ReducingState: ("reducingState", _APPENDING),
    AggregatingState: ("aggregatingState", _APPENDING),
}
_CLEAR: Final = "stateClearLatency"


class StateLatency:
    """Tracks the states of one operator in one subtask; see the module docstring.

    Args:
        sample_interval: of this many calls of a kind one is timed, starting with the first.
        history_size: how many durations of a kind to remember.
        steady_ns: a clock (ns) that never goes back.
    """

    def __init__(self, sample_interval: int, history_size: int, steady_ns: Callable[[], int]) -> None:
        self._sample_interval = sample_interval
        self._history_size = history_size
        self._steady_ns = steady_ns
        self._histograms: dict[str, SlidingHistogram] = {}

    def follow(self, name: str, state: S) -> S:
        """Track a state from now on, and return it."""
        kind, methods = next(names for of, names in _NAMES.items() if isinstance(state, of))
        metrics = {method: f"{kind}{operation}Latency" for method, operation in methods.items()} | {"clear": _CLEAR}
        cls = type(state)
        timed = {method: self._timed(getattr(cls, method), f"{name}.{metric}") for method, metric in metrics.items()}
        followed = types.new_class(cls.__name__, (cls,), exec_body=lambda body: body.update(timed, __slots__=()))
        state.__class__ = followed
        return state

    def figures(self) -> dict[str, HistogramFigures]:
        """Return the durations (ns) of the calls so far, by `<state>.<metric>`."""
        return {name: histogram.figures() for name, histogram in self._histograms.items() if histogram.count}

    def _timed(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        histogram = self._histograms.setdefault(name, SlidingHistogram(self._history_size))
        steady_ns, interval, passed = self._steady_ns, self._sample_interval, 0

        def call(state: State, *args: Any) -> Any:
            nonlocal passed
            if passed:
                passed = (passed + 1) % interval
                return method(state, *args)
            passed = 1 % interval
            begun_ns = steady_ns()
            try:
                return method(state, *args)
            finally:
                histogram.update(steady_ns() - begun_ns)

        return call
