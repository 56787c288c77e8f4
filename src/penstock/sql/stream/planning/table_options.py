"""Table options that no connector handles: the watermarks of a scanned table, and parallelism.

They are set in WITH or in the hint OPTIONS. See Flink's document "Sources & Sinks" for `scan.watermark.*`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from penstock.base.config_options import DURATION_MS, INTEGER, STRING, ConfigOption, choice
from penstock.base.configuration import Configuration
from penstock.base.watermark_strategy import WatermarkAlignment, WatermarkStrategy
from penstock.sql.catalogs.ddl import NULL_TIME, NULL_TIME_TABLE
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import Node, Scan, Unary, Write

EMIT_STRATEGY: Final = ConfigOption("scan.watermark.emit.strategy", choice("ON-PERIODIC", "ON-EVENT"), "ON-PERIODIC")
ON_EVENT_GAP: Final = ConfigOption("scan.watermark.emit.on-event.gap", INTEGER, 1)
IDLE_TIMEOUT_MS: Final = ConfigOption("scan.watermark.idle-timeout", DURATION_MS, 0)
SCAN_PARALLELISM: Final = ConfigOption("scan.parallelism", INTEGER, 0)
SINK_PARALLELISM: Final = ConfigOption("sink.parallelism", INTEGER, 0)
ALIGNMENT_GROUP: Final = ConfigOption("scan.watermark.alignment.group", STRING, "")
MAX_DRIFT_MS: Final = ConfigOption("scan.watermark.alignment.max-drift", DURATION_MS, 0)
UPDATE_INTERVAL_MS: Final = ConfigOption("scan.watermark.alignment.update-interval", DURATION_MS, 1_000)
_ALIGNMENT: Final[tuple[ConfigOption[Any], ...]] = (ALIGNMENT_GROUP, MAX_DRIFT_MS, UPDATE_INTERVAL_MS)
_ALL: Final[tuple[ConfigOption[Any], ...]] = (
    EMIT_STRATEGY,
    ON_EVENT_GAP,
    IDLE_TIMEOUT_MS,
    SCAN_PARALLELISM,
    SINK_PARALLELISM,
    NULL_TIME,
    NULL_TIME_TABLE,
    *_ALIGNMENT,
)
_KEYS: Final = frozenset(option.key() for option in _ALL)
TableT = TypeVar("TableT", Scan, Write)


@dataclass(frozen=True, slots=True)
class WatermarkOptions:
    """How the watermarks of a table advance.

    Args:
        idle_ms: after how long without rows a stream is idle, so that others do not wait for it; 0 for never.
        gap: the number of rows between watermarks; 0 for one watermark after each batch.
        alignment: the group of tables to stay close to; None without alignment.
    """

    idle_ms: int = 0
    gap: int = 0
    alignment: WatermarkAlignment | None = None

    def applied(self, strategy: WatermarkStrategy) -> WatermarkStrategy:
        """Return a source's strategy with these options, except the gap."""
        idle_ms = self.idle_ms or None
        return replace(strategy, idleness_ms=idle_ms, alignment=self.alignment)


def of_connector(node: TableT) -> TableT:
    """Return the table with only the options of its connector."""
    if not any(key in _KEYS for key, _ in node.options):
        return node
    return replace(node, options=tuple((key, value) for key, value in node.options if key not in _KEYS))


def watermark_options(node: Node, idle_ms: int) -> WatermarkOptions:
    """Return the watermark options that apply above a node. `idle_ms`: the session's idle timeout."""
    while isinstance(node, Unary):
        node = node.input
    if not isinstance(node, Scan):
        return WatermarkOptions(idle_ms)
    options = _read(node)
    gap = 0
    if options.read(EMIT_STRATEGY) == "ON-EVENT":
        gap = options.read(ON_EVENT_GAP)
        if gap <= 0:
            raise ValidationError(f"Invalid value for option '{ON_EVENT_GAP.key()}': it must be above 0, not {gap}")
    own = options.contains_key(IDLE_TIMEOUT_MS.key())
    return WatermarkOptions(options.read(IDLE_TIMEOUT_MS) if own else idle_ms, gap, _alignment(node, options))


def _alignment(node: Scan, options: Configuration) -> WatermarkAlignment | None:
    given = [alignment_option.key() for alignment_option in _ALIGNMENT if options.contains_key(alignment_option.key())]
    if not given:
        return None
    for option in (ALIGNMENT_GROUP, MAX_DRIFT_MS):
        if option.key() not in given:
            raise ValidationError(
                f"option '{given[0]}' of table {'.'.join(node.path)} needs '{option.key()}': tables are aligned in a "
                "group, and at most so far apart"
            )
    group, drift_ms = options.read(ALIGNMENT_GROUP), options.read(MAX_DRIFT_MS)
    interval_ms = options.read(UPDATE_INTERVAL_MS)
    if not group or drift_ms < 0 or interval_ms <= 0:
        raise ValidationError(
            f"Invalid alignment of table {'.'.join(node.path)}: the group must have a name, the drift must not be "
            f"negative and the interval must be above 0, but they are '{group}', {drift_ms} ms and {interval_ms} ms"
        )
    return WatermarkAlignment(group, drift_ms, interval_ms)


def read_parallelism(node: Scan | Write) -> int | None:
    """Return the parallelism that a table's options request; None for the job's parallelism."""
    option = SCAN_PARALLELISM if isinstance(node, Scan) else SINK_PARALLELISM
    options = _read(node)
    if not options.contains_key(option.key()):
        return None
    parallelism = options.read(option)
    if parallelism <= 0:
        raise ValidationError(
            f"Invalid configured parallelism {parallelism} for table '{'.'.join(node.path)}': '{option.key()}' must be "
            "above 0"
        )
    return parallelism


def _read(node: Scan | Write) -> Configuration:
    return Configuration.from_dict(dict(node.options))
