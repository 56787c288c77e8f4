"""What tests of windows share: functions that show what they are given, and the general operator in short."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from penstock.runtime.operators.window.base import ApplyResult, ListContents
from penstock.runtime.operators.window.general import WindowOperator
from penstock.runtime.windowing import TimeWindow
from penstock.testing import Record, run_hostile


def first(value: Any) -> Any:
    return value[0]


def add(one: Any, other: Any) -> Any:
    return one[0], one[1] + other[1]


def bounds(window: Any) -> Any:
    return (window.start, window.end) if isinstance(window, TimeWindow) else repr(window)


def show(key: Any, window: Any, inputs: Any) -> Iterator[Any]:
    """What fires: the key, the window, and what came with the records, sorted."""
    yield key, bounds(window), sorted(value[1] for value in inputs)


def window_operator(assigner: Any, trigger: Any = None, contents: Any = None, **arguments: Any) -> Any:
    """What makes a general window operator, which shows what fires unless `contents` are given."""
    if contents is None:
        contents = ListContents()
        arguments.setdefault("result", ApplyResult(show, True))
    trigger = trigger or assigner.get_default_trigger(None)
    return partial(WindowOperator, first, assigner, trigger, contents, **arguments)


def at(*times: int, key: str = "a") -> list[Record]:
    """Records (key, time) at these times."""
    return [Record((key, time), time) for time in times]


def untimed(*values: int, key: str = "a") -> list[Record]:
    """Records (key, value) without event time."""
    return [Record((key, value)) for value in values]


def hostile(backend: str, factory: Any, inputs: Any, expected: Any, sides: Any = None, **arguments: Any) -> None:
    """Run in every hostile way; on RocksDB, where each instance opens a store, in fewer."""
    if backend == "rocksdb":
        arguments.setdefault("batch_sizes", (1, 3))
    run_hostile(factory, inputs, expected, sides, **arguments)
