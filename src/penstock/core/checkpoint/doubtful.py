"""Checkpoints that failed while their metadata was written: they may be visible, or become so, and are revoked (G8).

A write that reports an error, or does not return in time, may have done its work all the same, or do it later. A later
job master would begin from what it finds visible. So the store is asked to take such a checkpoint back, again and again
until it says that it has, and no attempt of the job begins before that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.core.checkpoint.pending import PendingCheckpoint
from penstock.core.checkpoint.store_calls import StoreCalls
from penstock.core.effects import Effects
from penstock.core.ports import CheckpointStore, Clock

#: How long after an error a checkpoint is revoked again, and how long after a call that the store has not answered.
REVOKE_AGAIN_MS: Final = 1_000
REVOKE_UNANSWERED_MS: Final = 10_000


class DoubtfulCheckpoints:
    """See the module's text. `on_revoked` is called when the store has taken some back."""

    def __init__(
        self,
        clock: Clock,
        effects: Effects,
        calls: StoreCalls,
        store: CheckpointStore,
        on_revoked: Callable[[], None],
    ) -> None:
        #: Those that are not yet taken back.
        self.open: dict[int, PendingCheckpoint] = {}
        #: Those that were taken back, and are none whatever the store still does.
        self.revoked: set[int] = set()
        self._clock = clock
        self._effects = effects
        self._calls = calls
        self._store = store
        self._on_revoked = on_revoked
        self._again_ms: int | None = None
        #: those of which the log says that they hold up the job
        self._said: set[int] = set()

    def add(self, pending: PendingCheckpoint) -> None:
        """One more has failed: revoke it, and all others that are open."""
        self.open[pending.checkpoint_id] = pending
        self._revoke()

    def clear(self) -> None:
        """No attempt follows that they could mislead."""
        self.open.clear()
        self._again_ms = None

    def next_deadline(self) -> int | None:
        """When (ms) `on_time` has something to do."""
        return self._again_ms

    def on_time(self, now_ms: int) -> None:
        """Ask the store again if it has refused, or has not answered."""
        if self._again_ms is not None and now_ms >= self._again_ms:
            self._revoke()

    def _revoke(self) -> None:
        store, ids = self._store, list(self.open)
        self._again_ms = self._clock.steady_ms() + REVOKE_UNANSWERED_MS

        def work() -> None:
            for checkpoint_id in ids:
                store.revoke(checkpoint_id)

        def done(result: None, error: BaseException | None) -> None:
            open_ids = [checkpoint_id for checkpoint_id in ids if checkpoint_id in self.open]
            if not open_ids:
                return  # another call has done it, or the job is over
            if error is None:
                self._take_back(open_ids)
                return
            self._again_ms = self._clock.steady_ms() + REVOKE_AGAIN_MS
            self._say(open_ids[0], error)

        self._calls.run(work, done)

    def _take_back(self, ids: list[int]) -> None:
        for checkpoint_id in ids:
            del self.open[checkpoint_id]
            self.revoked.add(checkpoint_id)
        if not self.open:
            self._again_ms = None
        self._on_revoked()

    def _say(self, checkpoint_id: int, error: BaseException) -> None:
        if checkpoint_id not in self._said:
            self._said.add(checkpoint_id)
            self._effects.log(
                f"checkpoint {checkpoint_id} failed and may be visible all the same: the job does not restart until "
                f"the store has taken it back, which failed: {type(error).__name__}: {error}"
            )
