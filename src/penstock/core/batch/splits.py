"""Runs a source's enumerator outside STREAMING mode: splits are assigned ahead of the tasks that read them (I1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.base.errors import ContractError
from penstock.codecs.pickling import dumps_named, loads_named
from penstock.core.connector import Source, late_split
from penstock.storage.metadata import StateFile, checksum

T = TypeVar("T")


def enumerate_splits(source: Source[Any, Any], parallelism: int) -> list[tuple[bytes, ...]]:
    """Return all splits of a bounded source, by subtask.

    Raises:
        ContractError: if the enumerator does not come to an end.
    """
    dealer = SplitDealer(source, parallelism, None)
    try:
        dealt = dealer.deal()
    finally:
        dealer.close()
    if not all(dealer.no_more):
        raise ContractError(
            f"the split enumerator of {type(source).__name__} neither assigned a split nor called "
            "signal_no_more_splits(); the enumerator of a bounded source must do one of them"
        )
    return dealt


class SplitDealer:
    """Assigns splits to `parallelism` subtasks, once for a batch or at the start of each epoch.

    Its methods do the enumerator's IO, so the driver must call them. The dealer runs the enumerator's background calls
    at once; calls with a delay run at the start of the next epoch.
    """

    def __init__(self, source: Source[Any, Any], parallelism: int, restored: StateFile | None) -> None:
        self.parallelism = parallelism
        self.no_more = [False] * parallelism
        self._new: list[list[bytes]] = [[] for _ in range(parallelism)]
        self._now: list[Callable[[], None]] = []
        self._next_epoch: list[Callable[[], None]] = []
        self._what = type(source).__name__
        state = None
        if restored is not None and restored.data is not None:
            state = loads_named(restored.data, f"the state of the split enumerator of {self._what}")
        self._enumerator = source.create_enumerator(self, state)
        self._enumerator.start()
        self._work()

    def deal(self) -> list[tuple[bytes, ...]]:
        """Return the new splits of each subtask, pickled, distributed as evenly as the enumerator allows."""
        self._now += self._next_epoch
        self._next_epoch = []
        self._work()
        dealt = -1
        while dealt != (dealt := sum(map(len, self._new)) + sum(self.no_more)):
            for subtask in range(self.parallelism):
                if not self.no_more[subtask]:
                    self._enumerator.handle_split_request(subtask)
                    self._work()
        new, self._new = self._new, [[] for _ in range(self.parallelism)]
        return [tuple(splits) for splits in new]

    def snapshot(self, epoch: int) -> StateFile:
        """Return the enumerator's state; assigned splits are in the readers' state."""
        data = dumps_named(self._enumerator.snapshot_state(epoch), f"the state of the split enumerator of {self._what}")
        return StateFile(len(data), checksum(data), data=data)

    def close(self) -> None:
        """Close and drop the enumerator and its pending calls, which refer to the dealer in a cycle. Call it last."""
        self._enumerator.close()
        self._now.clear()
        self._next_epoch.clear()
        del self._enumerator

    def _work(self) -> None:
        while self._now:
            self._now.pop(0)()

    # --- the enumerator's context ----------------------------------------------------------------------------------

    def assign_split(self, split: Any, subtask_index: int) -> None:
        if self.no_more[subtask_index]:
            raise late_split(self._what, subtask_index)
        self._new[subtask_index].append(dumps_named(split, f"a split of {self._what}"))

    def signal_no_more_splits(self, subtask_index: int) -> None:
        self.no_more[subtask_index] = True

    def call_async(
        self, work: Callable[[], T], handler: Callable[[T | None, BaseException | None], None], delay_ms: int = 0
    ) -> None:
        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - the handler decides
                handler(None, error)
            else:
                handler(result, None)

        (self._next_epoch if delay_ms > 0 else self._now).append(run)
