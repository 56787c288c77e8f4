"""A stream without keys cut into windows (C1).

It is a keyed stream with one key, in one subtask. State, timers and snapshots are therefore those of keyed windows, and
batch execution sorts its records by time, as it does for any key. The operator cannot have more than one subtask,
because all records share its windows.
"""

from __future__ import annotations

from typing import Any

from penstock.base.typeinfo import TypeInformation
from penstock.core.operators.window.window_contents import ApplyAllResult, ProcessAllResult, WindowContents
from penstock.core.windowing import WindowAssigner
from penstock.datastream.data_stream import DataStream
from penstock.datastream.windowed_stream import Windows


class AllWindowedStream(Windows):
    """Windows of all records of a stream."""

    _process_result = ProcessAllResult
    _apply_result = ApplyAllResult

    def __init__(self, data_stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        super().__init__(data_stream.key_by(_the_one_key), _the_one_key, window_assigner)

    def _add(
        self, kind: str, contents: WindowContents, function: Any, output_type: TypeInformation | None
    ) -> DataStream:
        stream = super()._add(f"All-{kind}", contents, function, output_type)
        (upstream,) = stream.upstreams
        upstream.transformation.parallelism = upstream.transformation.parallelism_limit = 1
        return stream


def _the_one_key(value: Any) -> None:
    return None
