"""A replayable source whose splits arrive late, and a two-phase sink that writes to the outside world."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.drivers.simulation.outside_world import TransactionId, outside
from penstock.runtime import connector
from penstock.runtime.records import Batch

#: Timestamps of a split rise by STEP_MS per record, with a jitter of less than JITTER_MS. They are even, and session
#: gaps are odd: whether a record that begins exactly at a session's end belongs to it depends on the order of arrival.
STEP_MS = 10
JITTER_MS = 30


@dataclass(frozen=True, slots=True)
class Split:
    """The records of one split from `position` to `stop`, exclusive."""

    source: int
    index: int
    position: int
    stop: int


def generate_record(split: Split, position: int, keys: int) -> tuple[Any, int]:
    """Return a record and its timestamp (ms). The record is (key, origin, number)."""
    mixed = (split.source * 31 + split.index * 17 + position) * 2654435761 % 2**32
    timestamp = (split.index * split.stop + position) * STEP_MS + mixed % JITTER_MS // 2 * 2
    return ((mixed >> 8) % keys, (split.source, split.index, position), mixed % 13), timestamp


#: How often a reader of a lazy source has nothing available.
PAUSES = 0.1


class SimulatedSource(connector.Source[Any, Split]):
    """Yields the same records in every run; the outside world chooses when splits arrive.

    `early` is how likely a reader that requests a split is sent home although there are more; some other reader stays.
    While not all splits are `there`, the source is unbounded.
    """

    #: how many of its splits exist so far; None for all
    there: int | None = None

    def __init__(
        self,
        world: str,
        source: int,
        splits: int,
        split_records: int,
        keys: int,
        is_lazy: bool,
        early: float = 0.0,
        pauses: float | None = None,
    ) -> None:
        self.world = world
        self.keys = keys
        self.is_lazy = is_lazy
        self.early = early
        self.pauses = (PAUSES if is_lazy else 0.0) if pauses is None else pauses
        self.splits = [Split(source, i, 0, split_records) for i in range(splits)]

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded, once all splits exist."""
        return connector.Boundedness.BOUNDED if self.there is None else connector.Boundedness.CONTINUOUS_UNBOUNDED

    def readable(self, split: Split, now_ms: int) -> int:
        """Return the exclusive end of a split's readable part at a time (ms); its `stop` if all of it is readable."""
        return split.stop

    def batch(self, split: Split, stop: int) -> Batch:
        """Return the records of a split from its position to `stop`, exclusive."""
        return _batch(split, stop, self.keys)

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[Split], restored: Any | None
    ) -> connector.SplitEnumerator[Split]:
        return _Enumerator(self, context, self.splits if restored is None else restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, Split]:
        return _Reader(self, context)


class _Enumerator(connector.SplitEnumerator[Split]):
    """Hands out splits in time order, some at once and some after a delay."""

    def __init__(
        self, source: SimulatedSource, context: connector.SplitEnumeratorContext[Split], splits: list[Split]
    ) -> None:
        self._chance = outside(source.world).chance
        self._is_lazy = source.is_lazy
        self._context = context
        self._splits = deque(splits)
        self._early = source.early
        self._there = source.there
        self._sent_home = set[int]()
        #: readers that were notified that no more splits will follow
        self._told = set[int]()

    def start(self) -> None:
        """Do nothing: all splits are known."""

    def handle_split_request(self, subtask_index: int) -> None:
        if not self._is_lazy or self._chance.random() < 0.3:
            self._answer(subtask_index)
            return
        delay_ms = int(self._chance.random() * 3) * int(self._chance.random() * 60)
        self._context.call_async(lambda: None, lambda result, error: self._answer(subtask_index), delay_ms)

    def _answer(self, subtask_index: int) -> None:
        if subtask_index in self._told:
            return  # a reader that got two splits asks twice
        if self._there is not None and not self._is_there():
            return  # more may come
        # Splits returned by a restarted reader may be left for that reader alone.
        dismissed = self._told if self._splits else self._sent_home
        may_go = self._early and len(dismissed) + 1 < self._context.parallelism
        if may_go and self._chance.random() < self._early:
            self._sent_home.add(subtask_index)
            self._told.add(subtask_index)
            self._context.signal_no_more_splits(subtask_index)
            return
        is_answered = False
        for _ in range(2 if self._chance.random() < 0.2 else 1):
            if self._is_there():
                is_answered = True
                self._context.assign_split(self._splits.popleft(), subtask_index)
        if not is_answered or (not self._splits and self._chance.random() < 0.5):
            self._told.add(subtask_index)
            self._context.signal_no_more_splits(subtask_index)

    def _is_there(self) -> bool:
        return bool(self._splits) and (self._there is None or self._splits[0].index < self._there)

    def add_splits_back(self, splits: Sequence[Split], subtask_index: int) -> None:
        self._told.discard(subtask_index)
        self._sent_home.discard(subtask_index)
        # Restore the time order, or records would wrongly become late: readers return their splits one after another.
        self._splits = deque(sorted([*splits, *self._splits], key=lambda split: split.index))

    def snapshot_state(self, checkpoint_id: int) -> list[Split]:
        return list(self._splits)


class _Reader(connector.SourceReader[Any, Split]):
    def __init__(self, source: SimulatedSource, context: connector.SourceReaderContext) -> None:
        self._source = source
        self._pauses = source.pauses
        self._world = outside(source.world)
        self._chance = self._world.chance
        self._context = context
        self._splits: deque[Split] = deque()
        self._is_asking = False
        self._no_more = False
        self._has_stopped = False
        #: whether it has reported the end of its input
        self.has_ended = False
        if not self._world.is_deposed():
            self._world.on_reader_begun()

    def poll_next(self, max_records: int) -> Batch | connector.InputStatus:
        if self._has_stopped:
            self._world.note(f"polled: {self._splits} after the barrier of the savepoint that stops the job")
        if self._pauses and self._chance.random() < self._pauses:
            return connector.InputStatus.NOTHING_AVAILABLE
        while self._splits:
            split = self._splits[0]
            stop = min(self._source.readable(split, self._context.now_ms()), split.position + max_records)
            if split.position < stop:
                self._splits[0] = replace(split, position=stop)
                return self._source.batch(split, stop)
            if split.position < split.stop:
                return connector.InputStatus.NOTHING_AVAILABLE
            self._splits.popleft()
        if self._no_more:
            self.has_ended = True
            return connector.InputStatus.END_OF_INPUT
        if not self._is_asking:
            self._is_asking = True
            self._context.request_split()
        return connector.InputStatus.NOTHING_AVAILABLE

    def add_splits(self, splits: Sequence[Split]) -> None:
        # In time order: after rescaling, one reader may get the splits of several, in any order.
        self._splits = deque(sorted([*self._splits, *splits], key=lambda split: split.index))
        self._is_asking = False

    def no_more_splits(self) -> None:
        self._no_more = True

    def snapshot_state(self, checkpoint_id: int) -> list[Split]:
        if checkpoint_id in self._world.stopping and not self._world.is_deposed():
            self._has_stopped = True
        return list(self._splits)


def _batch(split: Split, stop: int, keys: int) -> Batch:
    values, timestamps = [], []
    for position in range(split.position, stop):
        value, timestamp = generate_record(split, position, keys)
        values.append(value)
        timestamps.append(timestamp)
    return Batch(values, timestamps)


class SimulatedSink(connector.Sink[Any]):
    """Writes in transactions, which the outside world keeps by id."""

    def __init__(self, world: str, name: str) -> None:
        self.world = world
        self.name = name

    def create_writer(self, context: connector.SinkWriterContext) -> connector.SinkWriter[Any, TransactionId]:
        return _Writer(self, context)

    def create_committer(self, context: connector.SinkWriterContext) -> connector.Committer[Any]:
        return _Committer(self, context)

    def create_commit_log(self, context: connector.SinkWriterContext, job_name: str) -> connector.CommitLog:
        return _CommitLog(self, context.job_id)


class _Writer(connector.SinkWriter[Any, TransactionId]):
    def __init__(self, sink: SimulatedSink, context: connector.SinkWriterContext) -> None:
        self._name = sink.name
        self._world = outside(sink.world)
        self._scope = (context.job_id, context.operator_id, context.subtask_index, context.attempt)
        #: includes the run of the task, where a task may run twice
        self._names = f"{context.run}-" if context.run else ""
        self._count = 0
        self._open: list[Any] = []
        self._prepared: list[TransactionId] = []
        self._since = context.restored_checkpoint_id or 0
        if context.attempt > 0:
            owner = (context.job_id, context.operator_id, context.subtask_index, context.parallelism)
            self._world.remove_stale(*owner, context.attempt, 0 if context.owes_nothing else self._since)

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        self._world.on_user_call()
        self._open.extend(values)

    def flush(self, end_of_input: bool) -> None:
        if end_of_input:
            self._world.on_finish(*self._scope[1:])

    def prepare_commit(self) -> list[TransactionId]:
        if not self._open:
            return []
        self._count += 1
        transaction_id = (*self._scope, f"{self._names}{self._count}")
        self._world.prepare(transaction_id, self._name, self._open, self._since)
        self._open = []
        self._prepared.append(transaction_id)
        return [transaction_id]

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        for transaction_id in self._prepared:
            self._world.transactions[transaction_id].checkpoint_id = checkpoint_id
        self._prepared.clear()
        self._since = checkpoint_id
        return []

    def pin(self, checkpoint_id: int, committables: Sequence[TransactionId]) -> None:
        for transaction_id in committables:
            self._world.transactions[transaction_id].is_pinned = True


class _Committer(connector.Committer[TransactionId]):
    def __init__(self, sink: SimulatedSink, context: connector.SinkWriterContext) -> None:
        self._world = outside(sink.world)
        self._job_id = context.job_id

    def commit(self, committables: Sequence[TransactionId]) -> None:
        for transaction_id in committables:
            self._world.commit(transaction_id, self._job_id)


class _CommitLog(connector.CommitLog):
    """Runs of a job follow one another, so any other run that left something to take back is dead."""

    def __init__(self, sink: SimulatedSink, job_id: str) -> None:
        self._world = outside(sink.world)
        self._job_id = job_id

    def begin(self) -> list[str]:
        dead = [job_id for job_id in self._world.commit_logs if job_id != self._job_id]
        for job_id in dead:
            self._world.take_back(job_id)
        return [f"what {job_id} had begun to commit was taken back" for job_id in dead]

    def write(self, committables: Sequence[TransactionId]) -> None:
        self._world.commit_logs[self._job_id] = list(committables)

    def take_back(self) -> None:
        self._world.take_back(self._job_id)

    def close_commit(self) -> None:
        del self._world.commit_logs[self._job_id]

    def end(self) -> None:
        """Do nothing, because only committed output remains of a run."""
