"""`CdcEnumerator`: prepares the server, and assigns the splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.connectors.postgres.cdc.options import CdcSettings
from penstock.connectors.postgres.cdc.position import LogSplit
from penstock.connectors.postgres.cdc.slots import prepared
from penstock.runtime import connector


class CdcEnumerator(connector.SplitEnumerator[Any]):
    """Prepares the server, and assigns the only split."""

    def __init__(
        self,
        context: connector.SplitEnumeratorContext[Any],
        settings: CdcSettings,
        restored: list[Any] | None,
        has_events: bool = False,
    ) -> None:
        self._context = context
        self._settings = settings
        self._has_events = has_events
        self._splits = restored
        self._waiting: list[int] = []

    def start(self) -> None:
        """Prepare the server, unless the state was restored."""
        if self._splits is None:
            self._context.call_async(lambda: prepared(self._settings, self._has_events), self._on_prepared)

    def _on_prepared(self, split: LogSplit | None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        assert split is not None
        self._splits = [split]
        waiting, self._waiting = self._waiting, []
        for subtask_index in waiting:
            self.handle_split_request(subtask_index)

    def handle_split_request(self, subtask_index: int) -> None:
        """See `SplitEnumerator`."""
        if self._splits is None:
            self._waiting.append(subtask_index)
        elif self._splits:
            self._context.assign_split(self._splits.pop(), subtask_index)
        else:
            self._context.signal_no_more_splits(subtask_index)

    def add_splits_back(self, splits: Sequence[Any], subtask_index: int) -> None:
        """See `SplitEnumerator`."""
        self._waiting = [other for other in self._waiting if other != subtask_index]
        if splits:
            self._splits = list(splits)

    def snapshot_state(self, checkpoint_id: int) -> list[Any] | None:
        """Return the split, unless it is assigned to a reader; None if it is not known yet."""
        return None if self._splits is None else list(self._splits)
