"""The workers of a job: asked for, registered, watched by their heartbeats, lost. One worker has one slot (E3).

The pool knows which workers are there and which are still to come. The job master decides what the loss of a worker
means for the job.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from penstock.core.effects import Effects
from penstock.core.job.scheduler import assign_slots
from penstock.core.ports import Clock
from penstock.core.protocol import RegisterWorker

#: How long a job waits for slots before the log says so, and how often it says so after that.
PATIENCE_MS: Final = 10_000
WORD_INTERVAL_MS: Final = 30_000


@dataclass
class _Worker:
    registration: RegisterWorker
    heard_ms: int
    #: what it was at when it was heard, when it had been at it for a while
    whereabouts: str = ""


@dataclass
class SlotPool:
    """The slots of a job that needs `required` of them.

    Args:
        clock: tells when workers were heard.
        effects: where workers are asked for and released.
        required: slots that the job takes.
        request_timeout_ms: how long the job waits for its slots.
        heartbeat_timeout_ms: how long a worker may be silent; None when heartbeats are not watched.
    """

    clock: Clock
    effects: Effects
    required: int
    request_timeout_ms: int
    heartbeat_timeout_ms: int | None
    #: until when (ms) the job waits for slots; None when it does not
    _deadline_ms: int | None = field(init=False, default=None)
    _begun_ms: int = field(init=False, default=0)
    _word_ms: int = field(init=False, default=0)
    _workers: dict[str, _Worker] = field(init=False, default_factory=dict)
    _lost: set[str] = field(init=False, default_factory=set)
    _requested: int = field(init=False, default=0)
    #: the worker of each slot, since the last deployment
    _slots: list[str] = field(init=False, default_factory=list)

    def validate(self) -> None:
        """Assert what holds between any two turns. The simulator calls this; a running job never does."""
        assert self._requested >= 0, "workers on their way are counted from 0"
        assert self._lost.isdisjoint(self._workers), "a worker that is lost does not come again"

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def is_waiting(self) -> bool:
        """Whether the job waits for slots."""
        return self._deadline_ms is not None

    @property
    def is_complete(self) -> bool:
        """Whether there are as many workers as the job needs."""
        return len(self._workers) >= self.required

    @property
    def registrations(self) -> list[RegisterWorker]:
        return [worker.registration for worker in self._workers.values()]

    def acquire(self) -> None:
        """Wait for the slots, and ask for the workers that are missing and were not asked for yet."""
        now_ms = self.clock.steady_ms()
        if self._deadline_ms is None:
            self._begun_ms, self._word_ms = now_ms, now_ms + PATIENCE_MS
        self._deadline_ms = now_ms + self.request_timeout_ms
        missing = self.required - len(self._workers) - self._requested
        if missing > 0:
            self._requested += missing
            self.effects.request_workers(missing)

    def stop_waiting(self) -> None:
        """The slots are there, or the job needs them no longer."""
        self._deadline_ms = None

    def register(self, registration: RegisterWorker) -> None:
        """A worker has come, unless it has died since, and the news of that was faster."""
        if registration.worker_id in self._lost:
            return
        self.on_request_answered()
        self._workers[registration.worker_id] = _Worker(registration, self.clock.steady_ms())

    def on_request_answered(self) -> None:
        """One of the workers that were asked for has come, or will not come."""
        self._requested = max(0, self._requested - 1)

    def on_heartbeat(self, worker_id: str, whereabouts: str = "") -> None:
        """A worker was heard; `whereabouts` says where it is, when a user's function does not return."""
        worker = self._workers.get(worker_id)
        if worker is not None:
            worker.heard_ms = self.clock.steady_ms()
            worker.whereabouts = whereabouts

    def whereabouts(self, worker_id: str) -> str:
        """Which user's function does not return, as the worker said last; empty when it said nothing."""
        worker = self._workers.get(worker_id)
        return "" if worker is None else worker.whereabouts

    def lose(self, worker_id: str) -> tuple[bool, RegisterWorker | None]:
        """A worker is gone: returns whether that is new, and its registration, or None if it had never registered."""
        worker = self._workers.pop(worker_id, None)
        if worker_id in self._lost:
            return False, None
        self._lost.add(worker_id)
        if worker is None:
            self.on_request_answered()
            return True, None
        return True, worker.registration

    def assign(self) -> tuple[list[str], dict[str, str]]:
        """The worker of each slot, those of the last deployment where they still are; and all workers' addresses."""
        self._slots = assign_slots(self.required, self._workers, self._slots)
        return self._slots, {name: worker.registration.data_address for name, worker in self._workers.items()}

    def release_all(self) -> None:
        """The job needs no more workers."""
        for worker_id in list(self._workers):
            self.effects.release(worker_id)
        self._workers.clear()

    # --- time --------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When (ms) a worker will have been silent for too long, or the job will have waited too long for slots."""
        times = [] if self._deadline_ms is None else [self._deadline_ms, self._word_ms]
        if self._workers and self.heartbeat_timeout_ms is not None:
            times.append(min(worker.heard_ms for worker in self._workers.values()) + self.heartbeat_timeout_ms)
        return min(times, default=None)

    def is_timed_out(self, now_ms: int) -> bool:
        """Whether the job has waited too long for slots."""
        return self._deadline_ms is not None and now_ms >= self._deadline_ms

    def word(self, now_ms: int) -> str | None:
        """What to say of a job that waits for slots; None while there is nothing to say."""
        if self._deadline_ms is None or now_ms < self._word_ms:
            return None
        self._word_ms = now_ms + WORD_INTERVAL_MS
        return (
            f"waiting for slots for {(now_ms - self._begun_ms) // 1000} s: wanted {self.required}, got {len(self)}; "
            f"the job fails in {(self._deadline_ms - now_ms) // 1000} s (slot.request.timeout)"
        )

    def silent(self, now_ms: int) -> Collection[str]:
        """The workers that have been silent for too long."""
        timeout_ms = self.heartbeat_timeout_ms
        if timeout_ms is None:
            return ()
        return [name for name, worker in self._workers.items() if now_ms - worker.heard_ms >= timeout_ms]
