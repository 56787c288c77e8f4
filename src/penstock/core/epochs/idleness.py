"""Event time where some tasks had nothing to read in an epoch; see the package's text."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.epochs.work import EpochAnswer


class InputWatermarks:
    """How far the producers have come: for each edge the lowest of those that are not idle, or of all when all are.

    Attributes:
        watermark: the lowest of all edges; None when no producer has reported.
    """

    def __init__(self) -> None:
        self.watermark: int | None = None
        self._active: dict[int, int] = {}
        self._idle: dict[int, int] = {}

    def add(self, edge: int, watermark: int, is_idle: bool) -> None:
        """A producer reports."""
        known = self._idle if is_idle else self._active
        known[edge] = min(watermark, known.get(edge, watermark))
        self.watermark = min({**self._idle, **self._active}.values())

    @property
    def are_idle(self) -> bool:
        """Whether all producers that are known are idle."""
        return bool(self._idle) and not self._active


def watermarks_behind(answers: Mapping[tuple[int, int], EpochAnswer]) -> dict[tuple[int, int], dict[int, int]]:
    """The watermarks of all tasks after an epoch, by vertex and subtask.

    That of an idle task is no lower than the lowest of the tasks that were active in its vertex.
    """
    reached: dict[int, dict[int, int]] = {}
    for (vertex, _), answer in answers.items():
        if not answer.is_idle:
            known = reached.setdefault(vertex, dict(answer.watermarks))
            known.update({place: min(mark, known.get(place, mark)) for place, mark in answer.watermarks.items()})
    return {
        (vertex, subtask): {
            place: max(mark, reached.get(vertex, {}).get(place, mark)) if answer.is_idle else mark
            for place, mark in answer.watermarks.items()
        }
        for (vertex, subtask), answer in answers.items()
    }
