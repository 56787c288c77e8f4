"""A small sink that keeps all rules, and many that break one each.

What it writes is staged under a name; a commit moves it to where readers see it, and notes the name.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from penstock.base.errors import OperationError
from penstock.runtime.connector import CommitLog, Committer, Sink, SinkWriter


class Store:
    """The system: what readers see, what is staged, and which names were committed."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.staged: dict[str, list[Any]] = {}
        self.done: set[Any] = set()
        self.pinned: set[str] = set()
        self.versions = 0


STORES: dict[int, Store] = {}


class Writer(SinkWriter[Any, Any]):
    def __init__(self, sink: Staging, context: Any, state: Sequence[Any]) -> None:
        self.sink, self.context = sink, context
        self.store = STORES[sink.number]
        self.rows: list[Any] = []
        self.prepared = max(state, default=0)

    def name(self) -> str:
        context = self.context
        return f"{context.job_id}/{context.subtask_index}/{context.run}/{self.prepared}"

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        self.rows += values

    def prepare_commit(self) -> list[Any]:
        if not self.rows:
            return []
        self.prepared += 1
        name = self.name()
        self.store.staged[name] = self.rows
        self.rows = []
        return [name]

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return [self.prepared]

    def pin(self, checkpoint_id: int, committables: Sequence[Any]) -> None:
        self.store.pinned |= set(committables)


class Commits(Committer[Any]):
    def __init__(self, sink: Staging, context: Any) -> None:
        self.store, self.context = STORES[sink.number], context

    def commit(self, committables: Sequence[Any]) -> None:
        is_new = False
        for name in committables:
            if name not in self.store.done:
                self.store.rows += self.store.staged.pop(name)
                self.store.done.add(name)
                is_new = True
        self.store.versions += is_new

    def end_job(self) -> None:
        for name in set(self.store.staged) - self.store.pinned:
            del self.store.staged[name]


class Staging(Sink[Any]):
    """Keeps all rules."""

    writer: type[Writer] = Writer
    commits: type[Commits] = Commits

    def __init__(self) -> None:
        self.number = len(STORES)
        STORES[self.number] = Store()

    def create_writer(self, context: Any) -> SinkWriter[Any, Any]:
        return self.writer(self, context, ())

    def restore_writer(self, context: Any, state: Sequence[Any]) -> SinkWriter[Any, Any]:
        return self.writer(self, context, state)

    def create_committer(self, context: Any) -> Committer[Any] | None:
        return self.commits(self, context)


def staging(writer: type[Writer] = Writer, commits: type[Commits] = Commits, kind: type[Staging] = Staging) -> Staging:
    """A sink of these parts."""
    sink = kind()
    sink.writer, sink.commits = writer, commits
    return sink


# --- writers --------------------------------------------------------------------------------------------------------


class WritesThrough(Writer):
    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        self.store.rows += values


class ShowsWhatIsPrepared(Writer):
    def prepare_commit(self) -> list[Any]:
        names = super().prepare_commit()
        for name in names:
            self.store.rows += self.store.staged[name]
        return names


class CloseCommits(Writer):
    def close(self) -> None:
        self.store.rows += self.rows
        self.rows = []


class CloseDiscardsAll(Writer):
    """It discards what was prepared, too."""

    def __init__(self, sink: Staging, context: Any, state: Sequence[Any]) -> None:
        super().__init__(sink, context, state)
        self.names: list[str] = []

    def prepare_commit(self) -> list[Any]:
        names = super().prepare_commit()
        self.names += names
        return names

    def close(self) -> None:
        for name in self.names:
            self.store.staged[name] = []


class ClosesOnce(Writer):
    def close(self) -> None:
        del self.store


class NamesWithoutRun(Writer):
    """Two runs of one task have the same names."""

    def name(self) -> str:
        return f"{self.context.job_id}/{self.context.subtask_index}/{self.context.attempt}/{self.prepared}"


class NamesWithoutAttempt(Writer):
    """It counts on in its state, and what was prepared after the checkpoint has the same names again."""

    def name(self) -> str:
        return f"{self.context.job_id}/{self.context.subtask_index}/{self.prepared}"


class CountsAnew(Writer):
    """It has no state, and its names have no attempt: they begin anew."""

    def name(self) -> str:
        return f"{self.context.job_id}/{self.context.subtask_index}/{self.prepared}"

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return []


class HoldsAHandle(Writer):
    def prepare_commit(self) -> list[Any]:
        return [(name, threading.Lock()) for name in super().prepare_commit()]


class StateOfItsOwn(CountsAnew):
    """It counts on in its state, and takes over only what has its number."""

    def __init__(self, sink: Staging, context: Any, state: Sequence[Any]) -> None:
        super().__init__(sink, context, [number for subtask, number in state if subtask == context.subtask_index])

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return [(self.context.subtask_index, self.prepared)]


class PreparesTwice(Writer):
    """A checkpoint without records hands out what the one before did, under a new name."""

    last: Any = ()

    def prepare_commit(self) -> list[Any]:
        if not self.rows:
            self.rows, self.last = list(self.last), ()
        else:
            self.last = list(self.rows)
        return super().prepare_commit()


class OneSlot(Writer):
    """What it stages takes the place of what it has staged."""

    def name(self) -> str:
        return f"{self.context.job_id}/{self.context.subtask_index}/{self.context.run}"

    def prepare_commit(self) -> list[Any]:
        self.store.done.discard(self.name())
        return super().prepare_commit()


class EmptyIsAnError(Writer):
    def prepare_commit(self) -> list[Any]:
        if not self.rows:
            raise ValueError("nothing was written")
        return super().prepare_commit()


class MarksEmptyCheckpoints(Writer):
    def prepare_commit(self) -> list[Any]:
        self.rows = self.rows or ["nothing"]
        return super().prepare_commit()


class SharesItsPlace(Writer):
    """What is written goes to one place for the subtask; closing empties it."""

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        self.store.staged.setdefault(self.place, []).extend(values)

    @property
    def place(self) -> str:
        return f"open/{self.context.job_id}/{self.context.subtask_index}"

    def __init__(self, sink: Staging, context: Any, state: Sequence[Any]) -> None:
        super().__init__(sink, context, state)
        self.store.staged[self.place] = []

    def prepare_commit(self) -> list[Any]:
        self.rows = self.store.staged.pop(self.place, [])
        return super().prepare_commit()

    def close(self) -> None:
        self.store.staged[self.place] = []


class SweepsAtStart(Writer):
    """A new attempt removes what its subtask has staged, whatever a savepoint names."""

    def __init__(self, sink: Staging, context: Any, state: Sequence[Any]) -> None:
        super().__init__(sink, context, state)
        for name, rows in list(self.store.staged.items()):
            job, subtask, run, _ = name.split("/")
            is_earlier = run.partition("-")[0] < str(context.attempt)
            if job == context.job_id and subtask == str(context.subtask_index) and is_earlier and rows:
                self.store.staged[name] = []


class SweepsForGood(SweepsAtStart):
    """The same, and nothing is left of it."""

    def __init__(self, sink: Staging, context: Any, state: Sequence[Any]) -> None:
        super().__init__(sink, context, state)
        for name in [name for name, rows in self.store.staged.items() if not rows]:
            del self.store.staged[name]


class ForgetsToFlush(Writer):
    """At least once, but what is buffered at a checkpoint waits for more."""

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        self.rows += values
        self.store.rows += self.rows[:-1]
        self.rows = self.rows[-1:]

    def flush(self, end_of_input: bool) -> None:
        if end_of_input:
            self.store.rows += self.rows
            self.rows = []

    def prepare_commit(self) -> list[Any]:
        return []


class Flushes(ForgetsToFlush):
    def flush(self, end_of_input: bool) -> None:
        super().flush(True)


# --- committers -----------------------------------------------------------------------------------------------------


class CommitsAgain(Commits):
    def commit(self, committables: Sequence[Any]) -> None:
        for name in committables:
            self.store.rows += self.store.staged[name]


class RemembersInMemory(Commits):
    """It knows what it has committed itself."""

    def __init__(self, sink: Staging, context: Any) -> None:
        super().__init__(sink, context)
        self.own: set[str] = set()

    def commit(self, committables: Sequence[Any]) -> None:
        for name in [one for one in committables if one not in self.own]:
            self.store.rows += self.store.staged[name]
            self.own.add(name)


class SecondTimeIsAnError(Commits):
    def commit(self, committables: Sequence[Any]) -> None:
        for name in committables:
            self.store.rows += self.store.staged.pop(name)


class AllOrKnown(Commits):
    """If the first is there, it takes the rest for there, too."""

    def commit(self, committables: Sequence[Any]) -> None:
        if committables and committables[0] in self.store.done:
            return
        super().commit(committables)


class NewerIsNewer(Commits):
    """It takes whatever is older than the newest commit of its writer for committed."""

    def commit(self, committables: Sequence[Any]) -> None:
        for name in committables:
            _, subtask, run, number = name.split("/")
            age = (int(run.partition("-")[0].rstrip("ab")), int(number))
            newest = max((age for known, age in self.store.done if known == subtask), default=(-1, 0))
            if age > newest:
                self.store.rows += self.store.staged.pop(name)
                self.store.done.add((subtask, age))


class Reversed(Commits):
    def commit(self, committables: Sequence[Any]) -> None:
        super().commit(committables[::-1])


class TellsOfTheLost(Commits):
    """What is not there any more is an error that says so."""

    def commit(self, committables: Sequence[Any]) -> None:
        gone = [name for name in committables if name not in self.store.staged and name not in self.store.done]
        if gone:
            raise OperationError(f"{gone} was aborted")
        super().commit(committables)


class LeavesAll(Commits):
    def end_job(self) -> None: ...


class LeavesThoseOfOtherSubtasks(Commits):
    """What writers left that the job has no more after a rescale stays."""

    def end_job(self) -> None:
        for name in set(self.store.staged) - self.store.pinned:
            if name.split("/")[1] == "0":
                del self.store.staged[name]


class ClosesWithAnError(Commits):
    def close(self) -> None:
        raise ConnectionError("gone")


class EachIsAVersion(Commits):
    def commit(self, committables: Sequence[Any]) -> None:
        for name in committables:
            super().commit([name])


# --- sinks ----------------------------------------------------------------------------------------------------------


class Straight(Staging):
    """At least once: what is flushed is seen."""

    @property
    def shows_on_commit(self) -> bool:
        return False


class Globally(Staging):
    commits_globally = True


class Log(CommitLog):
    """The log of a batch, which takes back everything, or only some."""

    def __init__(self, store: Store, at_most: int) -> None:
        self.store, self.at_most = store, at_most
        self.before: list[Any] = []

    def begin(self) -> list[str]:
        return []

    def write(self, committables: Sequence[Any]) -> None:
        self.before = list(self.store.rows)

    def take_back(self) -> None:
        for _ in range(self.at_most):
            if len(self.store.rows) > len(self.before):
                self.store.rows.pop()

    def close_commit(self) -> None: ...

    def end(self) -> None: ...


class Logged(Staging):
    at_most = 1_000

    def create_commit_log(self, context: Any, job_name: str) -> CommitLog | None:
        return Log(STORES[self.number], self.at_most)


class HalfLogged(Logged):
    at_most = 1


class WithHandle(Staging):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
