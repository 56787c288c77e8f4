"""Up to where windows have fired, kept in snapshots.

Behind a restore event time begins again, and rows of windows that have fired may come. As in Flink, window functions
drop them as they did before; windows of GROUP BY TUMBLE and the like begin again.
"""

from __future__ import annotations

from typing import Final

from penstock.core.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.state.operator_state import UNION_MODE, OperatorStateBackend

FIRED: Final = "windows_fired_up_to"


class KeptWatermark:
    """The watermark of windows in operator state; the lowest one of all subtasks is restored."""

    def __init__(self, backend: OperatorStateBackend) -> None:
        self._state = backend.list_state(FIRED, UNION_MODE)

    def restored(self) -> int:
        """That of the snapshot; `MIN_TIMESTAMP` without one."""
        return min(self._state, default=MIN_TIMESTAMP)

    def keep(self, watermark: int) -> None:
        """Have the next snapshot hold it, also where no time has passed: then no subtask may drop what comes.

        The end of all time is no reason to drop what comes behind a restore.
        """
        self._state.update([watermark] if watermark < MAX_WATERMARK else [])
