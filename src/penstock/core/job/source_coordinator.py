"""The job master's half of a source: hosts its split enumerator and carries splits to the readers.

A snapshot of the enumerator fits the readers' snapshots (G1, G8). The job master captures the enumerator in the same
turn as it requests the barriers, and a worker handles messages in order. So a split assigned before the capture reaches
its reader ahead of the barrier and is in the reader's snapshot. A split assigned afterwards is still in the
enumerator's snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.codecs.pickling import dumps_named, loads_named
from penstock.core.connector import Source, SplitEnumerator, late_split
from penstock.core.effects import Effects

T = TypeVar("T")


class SourceCoordinator:
    """One source's enumerator, created again, from a snapshot or from the beginning, at every (re)start of the job."""

    def __init__(
        self,
        operator_id: str,
        source: Source[Any, Any],
        parallelism: int,
        effects: Effects,
        assign: Callable[[int, str, tuple[bytes, ...], bool], None],
        call_later: Callable[[int, Callable[[], None]], None],
        on_error: Callable[[BaseException], None],
        remembers: bool = True,
    ) -> None:
        self.operator_id = operator_id
        self.parallelism = parallelism
        self._source = source
        self._what = type(source).__name__
        self._effects = effects
        self._assign = assign
        self._call_later = call_later
        self._on_error = on_error
        self._enumerator: SplitEnumerator[Any] | None = None
        self._generation = 0
        #: readers that were signalled that no more splits follow
        self._told: set[int] = set()
        #: the last snapshot that was taken, or that the enumerator was restored from
        self._snapshot_id = 0
        #: whether to remember assigned splits, because a reader may restart alone
        self._remembers = remembers
        #: splits assigned since the last completed checkpoint: the snapshot before, the reader, the split
        self._assigned: list[tuple[int, int, bytes]] = []

    def reset(self, restored: bytes | None, checkpoint_id: int = 0) -> None:
        """Restart the enumerator, from a snapshot if given; `checkpoint_id`: the job's own checkpoint that holds it."""
        self.close()
        self._generation += 1
        self._told.clear()
        self._assigned.clear()
        self._snapshot_id = checkpoint_id
        state = None
        if restored is not None:
            state = loads_named(restored, f"the state of the split enumerator of {self._what}")
        self._enumerator = self._source.create_enumerator(self, state)
        self._enumerator.start()

    def rescale(self, parallelism: int, remembers: bool) -> None:
        """Change the number of readers, from the next `reset` on."""
        self.parallelism, self._remembers = parallelism, remembers

    def handle_request(self, subtask: int) -> None:
        """Handle a reader's request for a split."""
        if self._enumerator is not None:
            self._guard(lambda enumerator: enumerator.handle_split_request(subtask))

    def reset_reader(self, subtask: int, checkpoint_id: int) -> None:
        """Restart a reader alone, from a checkpoint: the enumerator takes back the splits assigned to it since then.

        The reader's snapshot holds the splits assigned before, see the module's docstring.
        """
        lost = [split for since, reader, split in self._assigned if reader == subtask and since >= checkpoint_id]
        self._assigned = [entry for entry in self._assigned if entry[1] != subtask]
        self._told.discard(subtask)
        splits = [loads_named(split, f"a split of {self._what}") for split in lost]
        self._guard(lambda enumerator: enumerator.add_splits_back(splits, subtask))

    def snapshot(self, checkpoint_id: int, completed_id: int) -> bytes:
        """Return the enumerator's state. `completed_id`: no reader restarts from a checkpoint before that one."""
        assert self._enumerator is not None
        self._snapshot_id = checkpoint_id
        self._assigned = [entry for entry in self._assigned if entry[0] >= completed_id]
        return dumps_named(
            self._enumerator.snapshot_state(checkpoint_id), f"the state of the split enumerator of {self._what}"
        )

    def close(self) -> None:
        """Close the enumerator; the job master ignores it from now on."""
        self._generation += 1
        enumerator, self._enumerator = self._enumerator, None
        if enumerator is not None:
            enumerator.close()

    def _guard(self, call: Callable[[SplitEnumerator[Any]], None]) -> None:
        try:
            if self._enumerator is not None:
                call(self._enumerator)
        except Exception as error:  # noqa: BLE001 - a connector's error fails the job, not the job master
            self._on_error(error)

    # --- the enumerator's context ----------------------------------------------------------------------------------

    def assign_split(self, split: Any, subtask_index: int) -> None:
        """Assign a split to a reader, unless it was signalled that no more splits follow."""
        if subtask_index in self._told:
            raise late_split(self._what, subtask_index)
        pickled = dumps_named(split, f"a split of {self._what}")
        if self._remembers:
            self._assigned.append((self._snapshot_id, subtask_index, pickled))
        self._assign(subtask_index, self.operator_id, (pickled,), False)

    def signal_no_more_splits(self, subtask_index: int) -> None:
        """Signal to a reader that no more splits follow."""
        self._told.add(subtask_index)
        self._assign(subtask_index, self.operator_id, (), True)

    def call_async(
        self, work: Callable[[], T], handler: Callable[[T | None, BaseException | None], None], delay_ms: int = 0
    ) -> None:
        """Run `work` in the background, then `handler` in the job master's turn, unless the source restarted."""
        generation = self._generation

        def done(result: T | None, error: BaseException | None) -> None:
            if generation == self._generation:
                self._guard(lambda _: handler(result, error))

        def begin() -> None:
            if generation == self._generation:
                self._effects.run(work, done)

        if delay_ms > 0:
            self._call_later(delay_ms, begin)
        else:
            begin()
