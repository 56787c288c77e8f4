"""Options by which windows would give results before they are over, or again for late rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.base.errors import UnsupportedError
from penstock.base.time import parse_duration

EARLY_FIRE: Final = "table.exec.emit.early-fire.enabled"
LATE_FIRE: Final = "table.exec.emit.late-fire.enabled"
ALLOW_LATENESS: Final = "table.exec.emit.allow-lateness"


def check_emit(options: Mapping[str, str]) -> None:
    """Raise `UnsupportedError` for an option that would let windows fire more than once."""
    for key in (EARLY_FIRE, LATE_FIRE):
        if options.get(key, "").strip().lower() == "true":
            raise UnsupportedError(f"{key} is not supported: a window gives its result once, when it is over")
    lateness = options.get(ALLOW_LATENESS)
    if lateness is not None and parse_duration(lateness).to_millis() > 0:
        raise UnsupportedError(
            f"{ALLOW_LATENESS} is not supported: rows that come after their window are dropped; let the watermark of "
            "the table wait for them"
        )
