"""Options that let windows in GROUP BY emit results before they end, and again for late rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.base.config_options import ConfigOption
from penstock.base.configuration import Configuration
from penstock.base.value_types import BOOLEAN, DURATION_MS
from penstock.table.data.errors import ValidationError

EARLY_FIRE: Final = ConfigOption("table.exec.emit.early-fire.enabled", BOOLEAN, False)
EARLY_DELAY_MS: Final = ConfigOption("table.exec.emit.early-fire.delay", DURATION_MS, -1)
LATE_FIRE: Final = ConfigOption("table.exec.emit.late-fire.enabled", BOOLEAN, False)
LATE_DELAY_MS: Final = ConfigOption("table.exec.emit.late-fire.delay", DURATION_MS, -1)
ALLOW_LATENESS_MS: Final = ConfigOption("table.exec.emit.allow-lateness", DURATION_MS, -1)


@dataclass(frozen=True, slots=True)
class Emission:
    """When windows emit results apart from their ends.

    Args:
        early_ms: how long (ms) after a window's first row a changed result is emitted, and the interval from then on;
            0 for after each row, None for not before the end.
        late_ms: the same for rows that arrive after the end.
        lateness_ms: how long after its end, in event time, a window accepts rows.
    """

    early_ms: int | None = None
    late_ms: int | None = None
    lateness_ms: int = 0

    @property
    def updates(self) -> bool:
        """Whether a window may emit several results."""
        return self.early_ms is not None or self.late_ms is not None

    def check(self, kind: str, is_group: bool) -> None:
        """Raise `ValidationError` for windows that cannot emit several results: SESSION, and window table functions."""
        if not self.updates:
            return
        keys = f"{EARLY_FIRE.key()} and {LATE_FIRE.key()}"
        if not is_group:
            raise ValidationError(
                f"Currently, window table function based aggregate doesn't support early-fire and late-fire: {keys} "
                f"are for GROUP BY {kind}(…)"
            )
        if kind == "SESSION":
            raise ValidationError(f"Session window doesn't support EMIT strategy currently: set {keys} to false")
        if self.late_ms is None:
            return
        if self.lateness_ms <= 0:
            raise ValidationError(
                f"{LATE_FIRE.key()} needs a time for which windows wait for late rows: set "
                f"{ALLOW_LATENESS_MS.key()} or table.exec.state.ttl"
            )
        if self.lateness_ms < self.late_ms:
            raise ValidationError(
                f"Allow-lateness [{self.lateness_ms}ms] should not be smaller than Late-fire delay [{self.late_ms}ms] "
                "when enable late-fire emit strategy."
            )


AT_THE_END: Final = Emission()


def emission(options: Mapping[str, str], state_ttl_ms: int) -> Emission:
    """Return the emission that a session's options specify. Raises `ValidationError` for a missing delay."""
    read = Configuration.from_dict(dict(options)).read
    delays: list[int | None] = []
    for enabled, delay in ((EARLY_FIRE, EARLY_DELAY_MS), (LATE_FIRE, LATE_DELAY_MS)):
        delay_ms = read(delay) if read(enabled) else None
        if delay_ms is not None and delay_ms < 0:
            raise ValidationError(f"{delay.key()} has to be set, and not below 0, where {enabled.key()} is true")
        delays.append(delay_ms)
    early_ms, late_ms = delays
    lateness_ms = read(ALLOW_LATENESS_MS)
    if late_ms is None:
        return Emission(early_ms)
    return Emission(early_ms, late_ms, state_ttl_ms if lateness_ms < 0 else lateness_ms)
