"""Event time where some tasks had nothing to read in an epoch; see the package's text."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.epochs.work import EpochAnswer


class InputWatermarks:
    """What the producers have come to: over each edge the lowest of those that are not idle, of all when all are.

    Attributes:
        watermark: the lowest of all edges; None when nobody has told.
    """

    def __init__(self) -> None:
        self.watermark: int | None = None
        self._active: dict[int, int] = {}
        self._idle: dict[int, int] = {}

    def add(self, edge: int, watermark: int, is_idle: bool) -> None:
        """A producer tells."""
        known = self._idle if is_idle else self._active
        known[edge] = min(watermark, known.get(edge, watermark))
        self.watermark = min({**self._idle, **self._active}.values())

    @property
    def are_idle(self) -> bool:
        """Whether all producers that are known are idle."""
        return bool(self._idle) and not self._active


def watermarks_behind(answers: Mapping[tuple[int, int], EpochAnswer]) -> dict[tuple[int, int], dict[int, int]]:
    """The watermarks of all tasks behind an epoch, by vertex and subtask; none of idle ones is behind all that were
    active in its vertex.
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
