"""Which splits each subtask of a bounded source reads: the enumerator is asked until it has no more (I1)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.core.connector import Source

T = TypeVar("T")


def splits_of(source: Source[Any, Any], parallelism: int) -> list[tuple[bytes, ...]]:
    """The pickled splits of each subtask, dealt out as evenly as the enumerator lets them.

    Does the enumerator's IO, so it is for the driver to call.
    """
    return _Assignment(source, parallelism).all()


class _Assignment:
    """An enumerator's context; what it asks to be done in the background is done at once."""

    def __init__(self, source: Source[Any, Any], parallelism: int) -> None:
        self.parallelism = parallelism
        self._splits: list[list[bytes]] = [[] for _ in range(parallelism)]
        self._open = set(range(parallelism))
        self._waiting: list[Callable[[], None]] = []
        self._enumerator = source.create_enumerator(self, None)

    def all(self) -> list[tuple[bytes, ...]]:
        enumerator = self._enumerator
        try:
            enumerator.start()
            self._do_waiting()
            while self._open:
                before = sum(map(len, self._splits)), len(self._open)
                for subtask in sorted(self._open):
                    if subtask in self._open:
                        enumerator.handle_split_request(subtask)
                        self._do_waiting()
                if before == (sum(map(len, self._splits)), len(self._open)):
                    raise RuntimeError(
                        f"the split enumerator {type(enumerator).__name__} neither assigned a split nor said that "
                        "there are no more, which one of a bounded source has to"
                    )
        finally:
            enumerator.close()
        return [tuple(splits) for splits in self._splits]

    def _do_waiting(self) -> None:
        while self._waiting:
            self._waiting.pop(0)()

    def assign_split(self, split: Any, subtask_index: int) -> None:
        self._splits[subtask_index].append(pickle.dumps(split, protocol=5))

    def signal_no_more_splits(self, subtask_index: int) -> None:
        self._open.discard(subtask_index)

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

        self._waiting.append(run)
