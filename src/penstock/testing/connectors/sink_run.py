"""A job with a single sink: its writers, checkpoints, commits and failures, one call of the sink at a time.

run = SinkRun(subject, Steps("my sink", SINK_RULES), parallelism=2).start()
run.write(5)                        # the next five records, each to its subtask
checkpoint = run.checkpoint()       # the writers' committables and states, pickled
run.complete(checkpoint)            # committed
again = run.after_failure(checkpoint, parallelism=3).start()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.codecs.pickling import dumps_named, loads_named
from penstock.runtime.connector import Committer, Sink, SinkWriter
from penstock.testing.connectors.hosts import SinkHost
from penstock.testing.connectors.rules import Steps, countable, some


def _nothing() -> None:
    """Do nothing."""


@dataclass
class SinkUnderTest:
    """A sink, and functions to observe its output.

    Args:
        sink: the sink, writing to a system in its initial state.
        records: the records to write, all different; about thirty are enough.
        read: returns the records that readers of the system see now.
        shown: maps written records, in order, to the records that readers should see; by default each of them, once.
            For a table with a key it is the last record of each key (`last_of_each`).
        key: extracts the part of a record that determines its subtask; None to distribute records round-robin.
        ordered: whether records of a key must be read in the order in which they were written.
        exactly_once: whether the sink promises exactly-once; by default `Sink.shows_on_commit`.
        client: receives the bytes that the sink sends to the client: (subtask, bytes).
        commits: returns the number of commits that readers could distinguish so far, for a sink that commits globally.
        leftovers: returns the names of remaining data that no reader sees.
        held_back: whether committed data may stay invisible while runs that do not count have something open, as in a
            log that is read in order.
        savepoints_outlive_failures: whether a savepoint's committables can be committed after the job has failed and
            continued from an earlier checkpoint. Otherwise committing them must raise.
        close: called after each use.
    """

    sink: Sink[Any]
    records: Sequence[Any]
    read: Callable[[], Sequence[Any]]
    shown: Callable[[Sequence[Any]], Sequence[Any]] = list
    key: Callable[[Any], Any] | None = None
    ordered: bool = False
    exactly_once: bool | None = None
    client: Callable[[int, bytes], Any] | None = None
    commits: Callable[[], int] | None = None
    leftovers: Callable[[], Sequence[Any]] | None = None
    held_back: bool = False
    savepoints_outlive_failures: bool = True
    close: Callable[[], None] = _nothing


def last_of_each(key: Callable[[Any], Any]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function from written records to the contents of a table with this key: the last record of each key."""

    def shown(records: Sequence[Any]) -> list[Any]:
        return list({countable(key(record)): record for record in records}.values())

    return shown


@dataclass
class SinkCheckpoint:
    """A checkpoint of a job with a single sink."""

    checkpoint_id: int = 0
    #: the number of records written before
    position: int = 0
    #: the state of each writer, as bytes
    states: list[bytes] = field(default_factory=list)
    #: committables prepared but not yet committed: by checkpoint, by subtask, as bytes
    committables: dict[int, list[bytes]] = field(default_factory=dict)
    #: the state of the sink's coordinator, as bytes; empty for a sink without one
    coordinator: bytes = b""

    def of_subtasks(self) -> list[list[Any]]:
        """Return the committables of each subtask, in the order of checkpoints."""
        shares: list[list[Any]] = []
        for _, subtasks in sorted(self.committables.items()):
            shares += [[] for _ in range(len(subtasks) - len(shares))]
            for index, data in enumerate(subtasks):
                shares[index] += loads_named(data, "the committables")
        return shares

    def all(self) -> list[Any]:
        """Return all committables."""
        return [committable for subtask in self.of_subtasks() for committable in subtask]


class SinkRun:
    """One attempt of a job.

    Args:
        subject: the sink under test.
        steps: records the calls.
        parallelism: the number of writers.
        restored: the checkpoint that the attempt starts from.
        attempt: the number of the attempt.
        job_id: the job.
        run: distinguishes the task runs of this attempt from others of the same attempt.
        before_step: called before each call; may raise to simulate a killed job.
        host: more arguments of `SinkHost`.
    """

    def __init__(
        self,
        subject: SinkUnderTest,
        steps: Steps,
        parallelism: int = 1,
        restored: SinkCheckpoint | None = None,
        attempt: int = 0,
        job_id: str = "job",
        run: str = "",
        before_step: Callable[[], None] = _nothing,
        **host: Any,
    ) -> None:
        self.subject, self.steps, self.parallelism, self.attempt = subject, steps, parallelism, attempt
        self._before_step, self._job_id, self._host, self._run = before_step, job_id, host, run
        with steps.call():
            self.sink: Sink[Any] = loads_named(dumps_named(subject.sink, "the sink"), "the sink")
        self.position = restored.position if restored is not None else 0
        self.checkpoint_id = restored.checkpoint_id if restored is not None else 0
        self.pending: dict[int, list[bytes]] = {}
        self._restored = restored
        self._keys: dict[Any, int] = {}
        self.hosts = [self.new_host(index) for index in range(parallelism)]
        self.writers: list[SinkWriter[Any, Any]] = []
        self.committers: list[Committer[Any] | None] = []
        self._coordinator: SinkWriter[Any, Any] | None = None

    def new_host(self, index: int = 0) -> SinkHost:
        """Create the context of a subtask of this attempt."""
        host = SinkHost(
            index,
            self.parallelism,
            self.attempt,
            self._job_id,
            run=f"{self.attempt}{self._run}-{index}",
            restored=self._restored.checkpoint_id if self._restored is not None else None,
            **self._host,
        )
        host.client = self.subject.client
        return host

    def note(self, text: str) -> None:
        """Record the next step, unless the job dies before it."""
        self._before_step()
        self.steps.note(f"attempt {self.attempt}{self._run}: {text}")

    def start(self) -> SinkRun:
        """Start each subtask, the last one first: commit its restored committables and create its writer."""
        restored = self._restored
        writers: dict[int, SinkWriter[Any, Any]] = {}
        shares = self._shares()
        is_global = self.sink.commits_globally
        self.committers = [None] * (1 if is_global else self.parallelism)
        for index in reversed(range(self.parallelism)):
            if not is_global:
                self._recommit(index, shares[index])
            states = self._states(index)
            if restored is None:
                self.note(f"create_writer of subtask {index}")
                with self.steps.call():
                    writers[index] = self.sink.create_writer(self.hosts[index])
            else:
                self.note(f"restore_writer of subtask {index} with {some(states)}")
                with self.steps.call():
                    writers[index] = self.sink.restore_writer(self.hosts[index], states)
            self.writers = [writers[i] for i in sorted(writers)]
        if is_global:
            self._recommit(0, [committable for share in shares for committable in share])
            state = loads_named(restored.coordinator, "the coordinator") if restored and restored.coordinator else []
            with self.steps.call():
                self._coordinator = self.sink.create_commit_coordinator(self.hosts[0], state)
        return self

    def _recommit(self, index: int, share: list[Any]) -> None:
        with self.steps.call():
            committer = self.committers[index] = self.sink.create_committer(self.hosts[index])
        if share and committer is not None:
            self.note(f"recommit of {len(share)} committables by subtask {index}")
            with self.steps.call():
                committer.recommit(share)

    def _shares(self) -> list[list[Any]]:
        restored = self._restored.of_subtasks() if self._restored is not None else []
        if len(restored) == self.parallelism:
            return restored
        flat = [committable for subtask in restored for committable in subtask]
        return [flat[(i + 1) % self.parallelism :: self.parallelism] for i in range(self.parallelism)]

    def _states(self, index: int) -> list[Any]:
        if self._restored is None:
            return []
        states: list[list[Any]] = [loads_named(data, "the state of a writer") for data in self._restored.states]
        flat = [item for of_writer in states for item in of_writer]
        if self.sink.shares_writer_state:
            return flat
        if len(states) == self.parallelism:
            return states[index]
        return flat[(index + 1) % self.parallelism :: self.parallelism]

    # --- what a job does ---------------------------------------------------------------------------------------------

    def write(self, count: int) -> None:
        """Write the next `count` records, or as many as are left, each to its subtask."""
        records = self.subject.records[self.position : self.position + count]
        shares: list[list[Any]] = [[] for _ in self.writers]
        for position, record in enumerate(records, start=self.position):
            shares[self._select_subtask(position, record)].append(record)
        for index, share in enumerate(shares):
            if share:
                self.note(f"subtask {index} writes {some(share)}")
                self.hosts[index].now += 10
                with self.steps.call():
                    self.writers[index].write_batch(list(share), None)
        self.position += len(records)

    def _select_subtask(self, position: int, record: Any) -> int:
        if self.subject.key is not None:
            position = self._keys.setdefault(countable(self.subject.key(record)), len(self._keys))
        return position % self.parallelism

    def checkpoint(self, end_of_input: bool = False) -> SinkCheckpoint:
        """Take a checkpoint: prepare the writers' commits and snapshot their states."""
        self.checkpoint_id += 1
        prepared, states = [], []
        for index, writer in enumerate(self.writers):
            self.note(f"flush and prepare_commit of subtask {index} for checkpoint {self.checkpoint_id}")
            with self.steps.call():
                writer.flush(end_of_input)
                committables = list(writer.prepare_commit())
            self.steps.add(f": {len(committables)} committables")
            with self.steps.call():
                prepared.append(dumps_named(committables, "the committables"))
            self.note(f"snapshot_state of subtask {index} for checkpoint {self.checkpoint_id}")
            with self.steps.call():
                items = writer.snapshot_state(self.checkpoint_id)
                states.append(dumps_named(list(items), "the state of a writer"))
        state = b""
        if self._coordinator is not None:
            prepared, state = self._coordinate(prepared, end_of_input)
        self.pending[self.checkpoint_id] = prepared
        return SinkCheckpoint(self.checkpoint_id, self.position, states, dict(self.pending), state)

    def _coordinate(self, prepared: list[bytes], end_of_input: bool) -> tuple[list[bytes], bytes]:
        """Return what the coordinator commits of the writers' committables, and its state."""
        coordinator = self._coordinator
        assert coordinator is not None
        self.note(f"prepare_commit of the coordinator for checkpoint {self.checkpoint_id}")
        with self.steps.call():
            coordinator.write_batch([item for data in prepared for item in loads_named(data, "the committables")], None)
            coordinator.flush(end_of_input)
            committables = list(coordinator.prepare_commit())
            state = dumps_named(coordinator.snapshot_state(self.checkpoint_id), "the coordinator")
            return [dumps_named(committables, "the committables")], state

    def savepoint(self) -> SinkCheckpoint:
        """Take a checkpoint whose committables must be kept, and which does not complete."""
        checkpoint = self.checkpoint()
        if self._coordinator is not None:
            self.note("pin of the coordinator")
            with self.steps.call():
                self._coordinator.pin(checkpoint.checkpoint_id, checkpoint.all())
        writers = () if self.sink.commits_globally else self.writers
        for index, (writer, named) in enumerate(zip(writers, checkpoint.of_subtasks(), strict=False)):
            if named:
                self.note(f"pin of subtask {index}")
                with self.steps.call():
                    writer.pin(checkpoint.checkpoint_id, named)
        return checkpoint

    def complete(self, checkpoint: SinkCheckpoint) -> None:
        """Commit everything prepared up to a checkpoint."""
        due = {i: self.pending.pop(i) for i in sorted(self.pending) if i <= checkpoint.checkpoint_id}
        shares = SinkCheckpoint(committables=due).of_subtasks()
        if self.sink.commits_globally:
            shares = [[committable for share in shares for committable in share]]
        for index, (committer, share) in enumerate(zip(self.committers, shares, strict=False)):
            if share and committer is not None:
                self.note(f"commit of {len(share)} committables of checkpoint {checkpoint.checkpoint_id}, by {index}")
                with self.steps.call():
                    committer.commit(share)

    def complete_one(self) -> SinkCheckpoint:
        """Take and complete a checkpoint."""
        checkpoint = self.checkpoint()
        self.complete(checkpoint)
        return checkpoint

    def finish(self) -> SinkCheckpoint:
        """End the input, complete the last checkpoint, and close."""
        last = self.checkpoint(end_of_input=True)
        self.note("the last checkpoint completes")
        self.complete(last)
        self.close()
        return last

    def after_failure(
        self, checkpoint: SinkCheckpoint | None, parallelism: int | None = None, **arguments: Any
    ) -> SinkRun:
        """Create the next attempt, without starting it, from a checkpoint or from scratch; this one is left open."""
        return SinkRun(
            self.subject,
            self.steps,
            parallelism or self.parallelism,
            checkpoint,
            self.attempt + 1,
            self._job_id,
            before_step=self._before_step,
            **arguments,
        )

    def close(self) -> None:
        """Close writers and committers."""
        for index, writer in enumerate(self.writers):
            self.note(f"close of the writer of subtask {index}")
            with self.steps.call("close"):
                writer.close()
        for committer in self.committers:
            if committer is not None:
                with self.steps.call("close"):
                    committer.close()

    def live_on(self) -> None:
        """Act as an abandoned process: write, prepare and close. Errors are recorded as steps, not raised."""
        for index, writer in enumerate(self.writers):
            self.steps.note(f"attempt {self.attempt}, given up: subtask {index} writes, flushes, prepares and closes")
            records = list(self.subject.records[self.position : self.position + 2] or self.subject.records[-1:])
            try:
                writer.write_batch(records, None)
                writer.flush(False)
                writer.prepare_commit()
                writer.snapshot_state(self.checkpoint_id + 1)
            except Exception as error:  # noqa: BLE001 - it was fenced
                self.steps.add(f"; it raised {type(error).__name__}")
        self.abandon()

    def abandon(self) -> None:
        """Close everything, ignoring errors: the process has ended."""
        for part in (*self.writers, *self.committers):
            try:
                if part is not None:
                    part.close()
            except Exception as error:  # noqa: BLE001 - nobody hears of it
                self.steps.note(f"the close of what was given up raised {type(error).__name__}")
