"""Merges a job's accumulators from the latest reports of its subtasks."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

from penstock.base.accumulators import Accumulator
from penstock.codecs.pickling import dumps


def pickled(accumulator: Accumulator[Any, Any]) -> bytes:
    """Return an accumulator as bytes for the job master; if it cannot be pickled, return the error instead."""
    try:
        return dumps(accumulator)
    except Exception as error:  # noqa: BLE001 - user code; a figure is not worth a job
        return dumps(TypeError(f"the accumulator cannot be pickled: {type(error).__name__}: {error}"))


def accumulator_values(pairs: Iterable[tuple[str, bytes]]) -> dict[str, Any]:
    """Return the value of each accumulator over all subtasks, by name; if an accumulator has failed, its exception."""
    merged: dict[str, Any] = {}
    merge_accumulators(merged, pairs)
    return get_values(merged)


def merge_accumulators(merged: dict[str, Any], pairs: Iterable[tuple[str, bytes]]) -> None:
    """Merge accumulators into `merged`, by name; an exception replaces the accumulator that raised it."""
    for name, data in pairs:
        try:
            accumulator = pickle.loads(data)
            if isinstance(merged.get(name), Accumulator) and isinstance(accumulator, Accumulator):
                merged[name].merge(accumulator)
            elif name not in merged or isinstance(accumulator, Exception):
                merged[name] = accumulator
        except Exception as error:  # noqa: BLE001 - user code; the job has done its work all the same
            merged[name] = error


def get_values(merged: dict[str, Any]) -> dict[str, Any]:
    """Return the value of each merged accumulator."""
    return {name: _value(accumulator) for name, accumulator in merged.items()}


def _value(accumulator: Any) -> Any:
    try:
        return accumulator if isinstance(accumulator, Exception) else accumulator.get_local_value()
    except Exception as error:  # noqa: BLE001 - as above
        return error
