"""Event time if some tasks had nothing to read in an epoch; see the package's docstring."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.epochs.work import EpochAnswer
from penstock.core.records import MAX_WATERMARK


class InputWatermarks:
    """The producers' progress: for each edge the lowest watermark of active producers, or of all if all are idle.

    A producer that has ended (MAX_WATERMARK) counts as neither: the others alone determine their edge's watermark. A
    silent producer, which had no record and whose strategy asks for idleness, counts only if all others are silent or
    have ended.

    Attributes:
        watermark: the lowest of all edges; None if no producer has reported.
    """

    def __init__(self) -> None:
        self.watermark: int | None = None
        self._active: dict[int, int] = {}
        self._idle: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        self._silent: dict[int, int] = {}

    def add(self, edge: int, watermark: int, is_idle: bool, is_silent: bool = False) -> None:
        """Add a producer's report."""
        known = self._silent if is_silent else self._idle if is_idle else self._active
        if watermark == MAX_WATERMARK:
            known = self._ended
        known[edge] = min(watermark, known.get(edge, watermark))
        speaking = {**self._idle, **self._active}
        self.watermark = min({**self._ended, **(speaking or self._silent), **speaking}.values())

    @property
    def are_idle(self) -> bool:
        """Whether some producers are idle, and all other known ones have ended."""
        return bool(self._idle) and not self._active

    @property
    def are_silent(self) -> bool:
        """Whether some producers are silent, and all other known ones have ended."""
        return bool(self._silent) and not self._active and not self._idle


def watermarks_behind(answers: Mapping[tuple[int, int], EpochAnswer]) -> dict[tuple[int, int], dict[int, int]]:
    """Return the watermarks of all tasks after an epoch, by vertex and subtask.

    An idle task takes over the lowest watermark of the active, unended tasks of its vertex, unless its own is higher.
    """
    reached: dict[int, dict[int, int]] = {}
    for (vertex, _), answer in answers.items():
        if not answer.is_idle:
            known = reached.setdefault(vertex, {})
            open_ones = {position: mark for position, mark in answer.watermarks.items() if mark != MAX_WATERMARK}
            known.update({position: min(mark, known.get(position, mark)) for position, mark in open_ones.items()})
    return {
        (vertex, subtask): {
            position: max(mark, reached.get(vertex, {}).get(position, mark)) if answer.is_idle else mark
            for position, mark in answer.watermarks.items()
        }
        for (vertex, subtask), answer in answers.items()
    }
