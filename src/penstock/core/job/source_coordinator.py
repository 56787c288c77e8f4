"""The job master's half of a source: hosts its split enumerator and carries splits to the readers.

A snapshot of the enumerator fits those of the readers (G1, G8). The job master captures the enumerator in the same turn
in which it asks for the barriers, and a worker takes messages in order. So a split assigned before the capture reaches
its reader ahead of the barrier and is in the reader's snapshot. One assigned after it is still in the enumerator's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.codecs.pickling import dumps_named, loads_named
from penstock.core.connector import Source, SplitEnumerator, late_split
from penstock.core.effects import Effects

T = TypeVar("T")


class SourceCoordinator:
    """One source's enumerator; made again, from a snapshot or from nothing, at every (re)start of the job."""

    def __init__(
        self,
        operator_id: str,
        source: Source[Any, Any],
        parallelism: int,
        effects: Effects,
        assign: Callable[[int, str, tuple[bytes, ...], bool], None],
        call_later: Callable[[int, Callable[[], None]], None],
        on_error: Callable[[BaseException], None],
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
        #: readers that were told that no split will follow
        self._told: set[int] = set()

    def reset(self, restored: bytes | None) -> None:
        """Begin again, from a snapshot when there is one."""
        self.close()
        self._generation += 1
        self._told.clear()
        state = None
        if restored is not None:
            state = loads_named(restored, f"the state of the split enumerator of {self._what}")
        self._enumerator = self._source.create_enumerator(self, state)
        self._enumerator.start()

    def handle_request(self, subtask: int) -> None:
        """A reader asks for a split."""
        if self._enumerator is not None:
            self._guard(lambda enumerator: enumerator.handle_split_request(subtask))

    def snapshot(self, checkpoint_id: int) -> bytes:
        """The enumerator's state as of now."""
        assert self._enumerator is not None
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
        """Hand a split to a reader that has not been told of the end."""
        if subtask_index in self._told:
            raise late_split(self._what, subtask_index)
        self._assign(subtask_index, self.operator_id, (dumps_named(split, f"a split of {self._what}"),), False)

    def signal_no_more_splits(self, subtask_index: int) -> None:
        """Tell a reader that none will follow."""
        self._told.add(subtask_index)
        self._assign(subtask_index, self.operator_id, (), True)

    def call_async(
        self, work: Callable[[], T], handler: Callable[[T | None, BaseException | None], None], delay_ms: int = 0
    ) -> None:
        """Run `work` in the background, then `handler` in the job master's turn, unless the source began again."""
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
