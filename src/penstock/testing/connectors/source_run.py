"""Reads a source as a job does, one call of the connector at a time, with restarts at any point.

    run = SourceRun(NumberSequenceSource(0, 9), parallelism=2)
    run.advance(3)                  # one call: of the enumerator, or a poll of one reader for 3 records at most
    snapshot = run.snapshot()       # pickled, as in a checkpoint
    run.restart(snapshot)           # new enumerator, new readers; records read since are discarded
    run.all_values

`SourceRun` checks the invariants of each call. `check_source` checks the contract of a source as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.base.errors import short_repr
from penstock.codecs.pickling import dumps_named, loads_named
from penstock.runtime.columns import ColumnBatch, SplitColumnBatch
from penstock.runtime.connector import InputStatus, Source, SourceReader, SplitBatch, SplitEnumerator
from penstock.runtime.records import Batch
from penstock.testing.connectors.hosts import EnumeratorHost, ReaderHost, run_and_handle
from penstock.testing.connectors.rules import SOURCE_RULES, Steps, some

#: The duration (s) of a `poll_next` call above which the kit makes a remark.
SLOW_POLL_S: Final = 0.1
#: The pause (s) of a run in real time when no reader has any records.
PAUSE_S: Final = 0.003
POLLS_MAX: Final = 200_000


@dataclass
class SourceSnapshot:
    """A checkpoint of a source: the enumerator's state and the readers' splits, as bytes."""

    checkpoint_id: int
    enumerator: bytes
    readers: list[bytes]
    #: the number of records read before
    arrived: int
    #: the objects that the connector returned, not pickled
    live: tuple[Any, list[list[Any]]] = field(repr=False, default=(None, []))

    @property
    def splits(self) -> list[list[Any]]:
        """The splits of each reader."""
        return [loads_named(data, "a snapshot of a reader") for data in self.readers]

    @property
    def enumerator_state(self) -> Any:
        """The state of the enumerator."""
        return loads_named(self.enumerator, "the snapshot of the enumerator")

    def pickled_late(self) -> SourceSnapshot:
        """Return the same snapshot, with the objects that the connector returned pickled only now."""
        enumerator, readers = self.live
        pickled = [dumps_named(splits, "the snapshot of a reader") for splits in readers]
        data = dumps_named(enumerator, "the snapshot of the enumerator")
        return SourceSnapshot(self.checkpoint_id, data, pickled, self.arrived)


class SourceRun:
    """Reads a source with some subtasks.

    Args:
        source: pickled, as when it is sent to a job.
        parallelism: the number of readers.
        real_time: whether to wait in real time when no reader has records, as sources of servers need. Otherwise time
            is virtual.
        stopwatch: returns seconds; slow polls are only remarked on.
        case: the description of the run in errors.
        patience: the number of polls before each message is delivered, which delays answers to readers.
    """

    def __init__(
        self,
        source: Source[Any, Any],
        parallelism: int = 1,
        *,
        real_time: bool = False,
        stopwatch: Callable[[], float] = time.perf_counter,
        case: str = "",
        patience: int = 0,
    ) -> None:
        self.steps = Steps(type(source).__name__, SOURCE_RULES, case)
        with self.steps.call("picklable"):
            self.source: Source[Any, Any] = loads_named(dumps_named(source, "the source"), "the source")
        self.parallelism = parallelism
        self.hosts = [ReaderHost(i, parallelism) for i in range(parallelism)]
        #: the values read by each subtask
        self.values: list[list[Any]] = [[] for _ in range(parallelism)]
        #: all records read, in order: (subtask, value, timestamp)
        self.arrived: list[tuple[int, Any, int | None]] = []
        #: the readers that have ended
        self.ended: set[int] = set()
        #: consecutive rounds without records from any reader
        self.silent_rounds = 0
        #: slow polls: (step, seconds)
        self.slow_polls: list[tuple[str, float]] = []
        self._real_time, self._stopwatch = real_time, stopwatch
        self._patience, self._polls_due = patience, patience
        self._checkpoint_id = 0
        self._assigned: list[tuple[int, int, bytes]] = []
        self._next_poll = self._vain_polls = 0
        self._is_open = False
        self.begin(None, [()] * parallelism)

    # --- life --------------------------------------------------------------------------------------------------------

    def restart(self, snapshot: SourceSnapshot | None = None, parallelism: int | None = None) -> None:
        """Close everything and restart, from a new or an earlier snapshot; records read since are discarded.

        With another parallelism the splits are redistributed among the readers.
        """
        snapshot = snapshot or self.snapshot()
        if self._is_open:
            self.close()
        del self.arrived[snapshot.arrived :]
        splits = snapshot.splits
        state = snapshot.enumerator_state
        if parallelism is not None and parallelism != self.parallelism:
            now = self.hosts[0].now
            self.parallelism = parallelism
            self.hosts = [ReaderHost(i, parallelism) for i in range(parallelism)]
            for host in self.hosts:
                host.now = now
            self.arrived = [(-1, value, timestamp) for _, value, timestamp in self.arrived]
            flat = [split for reader in splits for split in reader]
            splits = [flat[(i + 1) % parallelism :: parallelism] for i in range(parallelism)]
        self.begin(state, splits, snapshot.checkpoint_id)

    def begin(self, enumerator_state: Any, splits: Sequence[Sequence[Any]], checkpoint_id: int = 0) -> None:
        """Create an enumerator and readers, from the state of an enumerator and the splits of each reader."""
        self.ended, self.paused = set(), [set[str]() for _ in self.hosts]
        self._asked = [False] * self.parallelism
        self._told = [False] * self.parallelism
        self._assigned = []
        self._since = checkpoint_id
        self._vain_polls = self.silent_rounds = 0
        self._count_values()
        self.master = EnumeratorHost(self.parallelism, self.steps.subject)
        begun = "from nothing" if enumerator_state is None and not any(splits) else "from a snapshot"
        self.steps.note(f"enumerator and {self.parallelism} readers begin {begun}")
        self.enumerator: SplitEnumerator[Any] = self.source.create_enumerator(self.master, enumerator_state)
        self.readers: list[SourceReader[Any, Any]] = []
        self._is_open = True
        self.enumerator.start()
        for index, restored in enumerate(splits):
            self._start_reader(index, restored)

    def _start_reader(self, index: int, restored: Sequence[Any]) -> None:
        host = self.hosts[index]
        host.requests, host.events, host.open_splits = 0, [], []
        reader = self.source.create_reader(host)
        self.readers[index : index + 1] = [reader]
        if restored:
            reader.add_splits(list(restored))
        reader.start()
        self._check_requests(index)

    def restart_reader(self, index: int, snapshot: SourceSnapshot | None) -> None:
        """Fail and restart a single reader, from the last completed snapshot, or from scratch."""
        checkpoint_id, arrived = (0, 0) if snapshot is None else (snapshot.checkpoint_id, snapshot.arrived)
        begun = "nothing" if snapshot is None else f"snapshot {checkpoint_id}"
        self.steps.note(f"the reader of subtask {index} begins again alone, from {begun}")
        self.readers[index].close()
        self.arrived[arrived:] = [entry for entry in self.arrived[arrived:] if entry[0] != index]
        self._count_values()
        mine = [split for since, to, split in self._assigned if to == index and since >= checkpoint_id]
        lost = [loads_named(split, "a split") for split in mine]
        lost += [split for to, split in self.master.assigned if to == index]
        self._assigned = [entry for entry in self._assigned if entry[1] != index]
        self.master.assigned = [entry for entry in self.master.assigned if entry[0] != index]
        self.master.finished = [to for to in self.master.finished if to != index]
        self.master.told.discard(index)
        self.ended.discard(index)
        self._asked[index] = self._told[index] = False
        self.paused[index] = set()
        self.steps.add(f"; splits that come back: {some(lost)}")
        self.enumerator.add_splits_back(lost, index)
        self._start_reader(index, () if snapshot is None else snapshot.splits[index])

    def _count_values(self) -> None:
        self.values = [[v for to, v, _ in self.arrived if to == index] for index in range(self.parallelism)]

    def snapshot(self, late_barrier: bool = False, batch_size: int = 1) -> SourceSnapshot:
        """Take a checkpoint: of the enumerator, and, after the splits in transit are delivered, of the readers.

        Args:
            late_barrier: whether readers emit one more batch in between.
            batch_size: the number of records in this batch.
        """
        self._checkpoint_id += 1
        state = self.enumerator.snapshot_state(self._checkpoint_id)
        data = dumps_named(state, "the snapshot of the enumerator")
        while self.master.assigned or self.master.finished:
            self._deliver_one()
        self._since = self._checkpoint_id
        if late_barrier:
            for index in range(self.parallelism):
                if index not in self.ended:
                    self.poll(index, batch_size)
        live = [reader.snapshot_state(self._checkpoint_id) for reader in self.readers]
        text = ", ".join(f"{i}: {some(list(splits))}" for i, splits in enumerate(live))
        self.steps.note(f"snapshot {self._checkpoint_id} of enumerator and readers; splits of subtask {text}")
        pickled = [dumps_named(list(splits), "the snapshot of a reader") for splits in live]
        return SourceSnapshot(self._checkpoint_id, data, pickled, len(self.arrived), (state, live))

    def complete(self, snapshot: SourceSnapshot) -> None:
        """Complete the checkpoint and notify the readers."""
        for reader in self.readers:
            reader.notify_checkpoint_complete(snapshot.checkpoint_id)

    def close(self) -> None:
        """Close the readers, then the enumerator."""
        self._is_open = False
        for reader in self.readers:
            reader.close()
        self.enumerator.close()

    def close_if_open(self) -> None:
        """Close everything unless it is closed already."""
        if self._is_open:
            self.close()

    def make_and_close(self) -> None:
        """Create an enumerator and a reader, and close them unused."""
        host = ReaderHost(0, self.parallelism)
        self.source.create_reader(host).close()
        self.source.create_enumerator(EnumeratorHost(self.parallelism), None).close()

    def finish_late_work(self) -> None:
        """Finish the background work of a closed enumerator, discarding its results."""
        for work, _, _ in self.master.background:
            run_and_handle(work, lambda result, error: None)
        self.master.background.clear()

    def begin_dealt(self, splits: Sequence[Sequence[Any]]) -> None:
        """Start readers that get all their splits at once, with no more to follow, as in BATCH."""
        self.begin(None, [()] * self.parallelism)
        self.enumerator.close()
        self.enumerator, self.master = _NoEnumerator(), EnumeratorHost(self.parallelism, self.steps.subject)
        for index, reader in enumerate(self.readers):
            self.steps.note(f"subtask {index} gets the splits {some(splits[index])}, and is told that none will follow")
            if splits[index]:
                reader.add_splits(list(splits[index]))
            reader.no_more_splits()
            self._told[index] = True
            self.hosts[index].requests = 0

    def pause(self, turn: int) -> None:
        """Pause some of the open splits of each reader and resume the others; every fifth turn resumes all."""
        for index in range(self.parallelism):
            if index in self.ended:
                continue
            is_open = self.hosts[index].open_splits
            chosen = {split for i, split in enumerate(is_open) if (i + turn) % 2 and turn % 5}
            pause, resume = chosen - self.paused[index], (self.paused[index] - chosen) & set(is_open)
            if pause or resume:
                self.steps.note(f"subtask {index}: pause {sorted(pause)}, resume {sorted(resume)}")
                self.readers[index].pause_or_resume_splits(sorted(pause), sorted(resume))
            self.paused[index] = chosen

    # --- calls, one after the other ----------------------------------------------------------------------------------

    def advance(self, batch_size: int) -> Batch | InputStatus | None:
        """Make one call of the connector: deliver a message between readers and enumerator if there is one, else poll.

        Returns:
            the result of the poll; None for a message.
        """
        active = [i for i in range(self.parallelism) if i not in self.ended]
        if not (active and self._polls_due):
            if self._message() or self._background(delayed=False) or self._deliver_one():
                self._vain_polls, self._polls_due = 0, self._patience
                return None
            if not active:
                return InputStatus.END_OF_INPUT
            if self._vain_polls >= len(active):
                self._pass_time(active)
        self._polls_due = max(0, self._polls_due - 1)
        self._next_poll += 1
        outcome = self.poll(active[self._next_poll % len(active)], batch_size)
        if isinstance(outcome, Batch):
            self.silent_rounds = 0
        self._vain_polls = 0 if outcome is not InputStatus.NOTHING_AVAILABLE else self._vain_polls + 1
        return outcome

    def _pass_time(self, active: list[int]) -> None:
        self.silent_rounds += 1
        self._vain_polls = 0
        if self._real_time:
            time.sleep(PAUSE_S)
        wait_ms = max(1, min(self.readers[index].retry_after_ms() for index in active))
        now = int(time.monotonic() * 1_000) if self._real_time else self.hosts[0].now + wait_ms
        for host in self.hosts:
            host.now = now
        self._background(delayed=True)

    def _message(self) -> bool:
        for index, host in enumerate(self.hosts):
            if host.events:
                event = loads_named(host.events.pop(0), "an event of a reader")
                self.steps.note(f"the enumerator hears from subtask {index}: {short_repr(event)}")
                self.enumerator.handle_source_event(index, event)
                return True
            if host.requests:
                host.requests -= 1
                self._asked[index] = True
                self.steps.note(f"the enumerator hears that subtask {index} asks for a split")
                self.enumerator.handle_split_request(index)
                return True
        return False

    def _background(self, delayed: bool) -> bool:
        for position, (work, handler, delay_ms) in enumerate(self.master.background):
            if delayed or not delay_ms:
                del self.master.background[position]
                self.steps.note("background work of the enumerator, and its handler")
                run_and_handle(work, handler)
                return True
        return False

    def _deliver_one(self) -> bool:
        if self.master.assigned:
            index, split = self.master.assigned.pop(0)
            self._assigned.append((self._since, index, dumps_named(split, "a split")))
            self.steps.note(f"subtask {index} gets the split {short_repr(split)}")
            self._asked[index] = False
            self.readers[index].add_splits([split])
        elif self.master.finished:
            index = self.master.finished.pop(0)
            self.steps.note(f"subtask {index} is told that no split will follow")
            self._asked[index], self._told[index] = False, True
            self.readers[index].no_more_splits()
        else:
            return False
        self._check_requests(index)
        return True

    def deliver(self) -> bool:
        """Deliver all messages between readers and enumerator, and run background work; return whether a split was
        delivered.
        """
        while self._message():
            pass
        self.master.run_background()
        has_splits = bool(self.master.assigned)
        while self._deliver_one():
            pass
        return has_splits

    def poll(self, index: int, batch_size: int) -> Batch | InputStatus:
        """Poll one reader, and check its result."""
        host, reader = self.hosts[index], self.readers[index]
        host.closed_now = []
        self.steps.note(f"subtask {index} is polled for {batch_size}")
        begun = self._stopwatch()
        outcome = reader.poll_next(batch_size)
        took_s = self._stopwatch() - begun
        if took_s > SLOW_POLL_S:
            self.slow_polls.append((self.steps.lines[-1], took_s))
        if isinstance(outcome, Batch):
            reader.polls_in_vain = 0
            self.steps.add(f": {some(outcome.values)}")
            self._check_batch(index, outcome, batch_size)
            stamps = outcome.timestamps if outcome.timestamps is not None else [None] * len(outcome)
            self.values[index] += outcome.values
            self.arrived += [(index, value, stamp) for value, stamp in zip(outcome.values, stamps, strict=True)]
        else:
            self.steps.add(f": {outcome.name}")
            reader.polls_in_vain += 1
            if outcome is InputStatus.END_OF_INPUT:
                if not self._told[index]:
                    raise self.steps.broken("end", "NOTHING_AVAILABLE until no_more_splits was called", "END_OF_INPUT")
                self.ended.add(index)
        self._check_requests(index)
        return outcome

    # --- checks ------------------------------------------------------------------------------------------------------

    def _check_requests(self, index: int) -> None:
        waiting = self.hosts[index].requests + self._asked[index]
        if waiting > 1:
            raise self.steps.broken("asks-once", "one request at a time", f"{waiting} without an answer")

    def _check_batch(self, index: int, batch: Batch, batch_size: int) -> None:
        broken, host = self.steps.broken, self.hosts[index]
        if not len(batch) or (len(batch) > batch_size and not isinstance(batch, ColumnBatch)):
            raise broken("batch-size", f"1 to {batch_size} records", f"{len(batch)} records")
        if batch.timestamps is not None and len(batch.timestamps) != len(batch):
            raise broken("batch-size", f"{len(batch)} timestamps", f"{len(batch.timestamps)}")
        if not isinstance(batch, SplitBatch | SplitColumnBatch):
            if host.open_splits:
                raise broken("open-split", "SplitBatch, as splits are open", type(batch).__name__)
            return
        split_id = batch.split_id
        if split_id in host.closed_now:
            raise broken("close-split", f"split {split_id!r} open until the next poll", "closed with its last batch")
        if split_id not in host.open_splits:
            raise broken("open-split", f"one of the open splits {host.open_splits}", f"records of {split_id!r}")
        if split_id in self.paused[index]:
            raise broken("paused", f"no records of {split_id!r}, which is paused", some(batch.values))

    # --- what was read -----------------------------------------------------------------------------------------------

    @property
    def all_values(self) -> list[Any]:
        """All values read: grouped by subtask, as long as the parallelism has not changed."""
        return [v for to, v, _ in self.arrived if to < 0] + [value for values in self.values for value in values]

    @property
    def timestamps(self) -> list[int]:
        """The timestamps of records that have one, in the order of arrival."""
        return [timestamp for _, _, timestamp in self.arrived if timestamp is not None]

    @property
    def side(self) -> list[tuple[str, Any]]:
        """Records of side outputs: (tag, value)."""
        return [entry for host in self.hosts for entry in host.side]


class _NoEnumerator(SplitEnumerator[Any]):
    """Ignores the readers' requests, because all splits have been assigned already."""

    def start(self) -> None:
        pass

    def handle_split_request(self, subtask_index: int) -> None:
        pass

    def add_splits_back(self, splits: Sequence[Any], subtask_index: int) -> None:
        pass

    def snapshot_state(self, checkpoint_id: int) -> None:
        return None


def read_source(
    source: Source[Any, Any], batch_size: int = 1000, parallelism: int = 1, hostile: bool = False
) -> SourceRun:
    """Read a bounded source to its end.

    Args:
        source: the source.
        batch_size: the number of records that a poll asks for.
        parallelism: the number of readers.
        hostile: whether to restart from snapshots after every batch and every split.

    Raises:
        ConformanceError: if it does not end, or breaks a rule that is checked at every call.
    """
    run = SourceRun(source, parallelism)
    try:
        for turn in range(POLLS_MAX):
            if turn % parallelism not in run.ended:
                outcome = run.poll(turn % parallelism, batch_size)
            if len(run.ended) == parallelism:
                return run
            if isinstance(outcome, Batch):
                if hostile:
                    run.restart(run.snapshot())
            elif run.deliver() and hostile:
                run.restart(run.snapshot())
        raise run.steps.broken("end", f"the end within {POLLS_MAX} polls", "no end")
    finally:
        run.close()
