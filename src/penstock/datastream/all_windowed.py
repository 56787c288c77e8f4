"""Windows over a stream without keys (C1).

Such a stream is a keyed stream with a single key, in one subtask. State, timers and snapshots therefore work as for
keyed windows, and batch execution sorts its records by time, as for any key. The operator is limited to one subtask,
because all records share its windows.
"""

from __future__ import annotations

from typing import Any

from penstock.base.typeinfo import TypeInformation
from penstock.core.operators.window.window_contents import ApplyAllResult, ProcessAllResult, WindowContents
from penstock.datastream.environment import StreamT
from penstock.datastream.windowed import Windows


class AllWindows(Windows[StreamT]):
    """Windows of all records of a stream that is partitioned by `the_one_key`."""

    _process_result = ProcessAllResult
    _apply_result = ApplyAllResult

    def _add(self, kind: str, contents: WindowContents, function: Any, output_type: TypeInformation | None) -> StreamT:
        stream = super()._add(f"All-{kind}", contents, function, output_type)
        transformation = stream._transformation
        transformation.parallelism = transformation.parallelism_limit = 1
        return stream


def the_one_key(value: Any) -> None:
    """Return the key of every record."""
    return None
