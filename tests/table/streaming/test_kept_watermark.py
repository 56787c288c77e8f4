"""Up to where windows have fired, behind a restore at any parallelism."""

from __future__ import annotations

import pytest

from penstock.core.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.state.operator_state import OperatorStateBackend
from penstock.table.streaming.windows.kept_watermark import FIRED, KeptWatermark


@pytest.mark.parametrize(
    ("watermarks", "restored"),
    [
        ([], MIN_TIMESTAMP),
        ([70, 50], 50),
        # For a subtask that has seen no time yet nothing is late, wherever its rows go.
        ([70, MIN_TIMESTAMP], MIN_TIMESTAMP),
        ([70, MAX_WATERMARK], 70),
        ([MAX_WATERMARK], MIN_TIMESTAMP),
    ],
)
def test_the_lowest_of_all_subtasks_counts(watermarks: list[int], restored: int) -> None:
    """D4."""
    captured: list[int] = []
    for watermark in watermarks:
        backend = OperatorStateBackend()
        KeptWatermark(backend).keep(watermark)
        captured += backend.list_state(FIRED, "union")
    backend = OperatorStateBackend()
    backend.list_state(FIRED, "union").update(captured)
    assert KeptWatermark(backend).restored() == restored
