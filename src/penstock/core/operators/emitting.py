"""Converts the results of user functions to batches: plain results, and `(OutputTag, value)` pairs for side outputs."""

from __future__ import annotations

from typing import Any

from penstock.base.output_tag import OutputTag
from penstock.core.operators.base import Output
from penstock.core.records import Batch


def is_side_output(result: Any) -> bool:
    """Return whether a result is `(OutputTag, value)`, PyFlink's way to write to a side output."""
    return result.__class__ is tuple and len(result) == 2 and result[0].__class__ is OutputTag


def split_side_outputs(output: Output, results: list[Any], timestamps: list[int] | None) -> Batch:
    """Emit the side outputs among `results`; returns the rest as a batch for the main output."""
    for result in results:
        if result.__class__ is tuple and result and result[0].__class__ is OutputTag:
            break
    else:
        return Batch(results, timestamps)
    main: tuple[list[Any], list[int]] = ([], [])
    sides: dict[str, tuple[list[Any], list[int]]] = {}
    for index, result in enumerate(results):
        values, times = main
        if is_side_output(result):
            tag, result = result
            values, times = sides.setdefault(tag.tag_id, ([], []))
        values.append(result)
        if timestamps is not None:
            times.append(timestamps[index])
    for tag_id, (values, times) in sides.items():
        output.collect_side(tag_id, Batch(values, None if timestamps is None else times))
    return Batch(main[0], None if timestamps is None else main[1])
