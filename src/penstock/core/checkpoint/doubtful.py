"""Revokes checkpoints that failed while their metadata was written, since they may be or become visible (G8).

A write that reports an error, or does not return in time, may still have succeeded, or may succeed later. A later job
master would start from any checkpoint that is visible. So the store is asked to revoke such a checkpoint, repeatedly
until it confirms, and no attempt of the job starts before that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.core.checkpoint.pending import PendingCheckpoint
from penstock.core.checkpoint.store_calls import StoreCalls
from penstock.core.effects import Effects
from penstock.core.ports import CheckpointStore, Clock

#: The delays before a revocation is repeated: after an error, and after a call that the store has not answered.
REVOKE_AGAIN_MS: Final = 1_000
REVOKE_UNANSWERED_MS: Final = 10_000


class DoubtfulCheckpoints:
    """See the module docstring. `on_revoked` is called when the store has revoked some."""

    def __init__(
        self,
        clock: Clock,
        effects: Effects,
        calls: StoreCalls,
        store: CheckpointStore,
        on_revoked: Callable[[], None],
    ) -> None:
        #: Checkpoints that are not revoked yet.
        self.open: dict[int, PendingCheckpoint] = {}
        #: Revoked checkpoints: they are invalid regardless of later writes by the store.
        self.revoked: set[int] = set()
        self._clock = clock
        self._effects = effects
        self._calls = calls
        self._store = store
        self._on_revoked = on_revoked
        self._again_ms: int | None = None
        #: checkpoints that were logged as blocking the job
        self._said: set[int] = set()

    def add(self, pending: PendingCheckpoint) -> None:
        """Add a failed checkpoint: revoke it, and all others that are open."""
        self.open[pending.checkpoint_id] = pending
        self._revoke()

    def clear(self) -> None:
        """Forget the open checkpoints: no attempt follows that they could mislead."""
        self.open.clear()
        self._again_ms = None

    def next_deadline(self) -> int | None:
        """Return the time (ms) when `on_time` is due."""
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
                return  # another call has revoked them, or the job is over
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
