"""How far event time comes in an epoch, by what the producers of each input say (C2)."""

from __future__ import annotations

import pytest

from penstock.runtime.epochs.coordinator import InputWatermarks
from penstock.runtime.records import MAX_WATERMARK

ACTIVE, IDLE, SILENT = (False, False), (True, False), (False, True)


@pytest.mark.parametrize(
    ("reports", "watermark", "idle", "silent"),
    [
        ([(0, 10, *ACTIVE), (1, 5, *ACTIVE)], 5, False, False),
        ([(0, 10, *ACTIVE), (1, 5, *IDLE)], 5, False, False),
        ([(0, 10, *ACTIVE), (0, 5, *IDLE)], 10, False, False),
        ([(0, 10, *ACTIVE), (1, 5, *SILENT)], 10, False, False),
        ([(0, 10, *SILENT), (1, 5, *SILENT)], 5, False, True),
        ([(0, MAX_WATERMARK, *ACTIVE), (1, 5, *SILENT)], 5, False, True),
        ([(0, MAX_WATERMARK, *ACTIVE), (1, 5, *SILENT), (1, 7, *ACTIVE)], 7, False, False),
        ([(0, 10, *IDLE), (1, 5, *SILENT)], 10, True, False),
        ([(0, MAX_WATERMARK, *ACTIVE)], MAX_WATERMARK, False, False),
    ],
)
def test_inputs_that_are_silent_hold_nothing_back(
    reports: list[tuple[int, int, bool, bool]], watermark: int, idle: bool, silent: bool
) -> None:
    """C2: unless all others are silent, too, or have ended."""
    inputs = InputWatermarks()
    for report in reports:
        inputs.add(*report)
    assert (inputs.watermark, inputs.are_idle, inputs.are_silent) == (watermark, idle, silent)
