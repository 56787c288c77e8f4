"""Options of tables that belong to no connector: how event time goes on while a table is read, and parallelism.

A table has them in WITH, or in the hint OPTIONS. See Flink's document "Sources & Sinks" for `scan.watermark.*`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeVar

from penstock.base.config_options import ConfigOption
from penstock.base.configuration import Configuration
from penstock.base.errors import UnsupportedError
from penstock.base.value_types import DURATION_MS, INTEGER, choice
from penstock.table.data.errors import ValidationError
from penstock.table.plan.logical import Node, Scan, Unary, Write

EMIT_STRATEGY: Final = ConfigOption("scan.watermark.emit.strategy", choice("ON-PERIODIC", "ON-EVENT"), "ON-PERIODIC")
ON_EVENT_GAP: Final = ConfigOption("scan.watermark.emit.on-event.gap", INTEGER, 1)
IDLE_TIMEOUT_MS: Final = ConfigOption("scan.watermark.idle-timeout", DURATION_MS, 0)
SCAN_PARALLELISM: Final = ConfigOption("scan.parallelism", INTEGER, 0)
SINK_PARALLELISM: Final = ConfigOption("sink.parallelism", INTEGER, 0)
_ALIGNMENT: Final = tuple(f"scan.watermark.alignment.{one}" for one in ("group", "max-drift", "update-interval"))
_KEYS: Final = frozenset(
    one.key() for one in (EMIT_STRATEGY, ON_EVENT_GAP, IDLE_TIMEOUT_MS, SCAN_PARALLELISM, SINK_PARALLELISM)
) | {*_ALIGNMENT}
TableT = TypeVar("TableT", Scan, Write)


@dataclass(frozen=True, slots=True)
class WatermarkOptions:
    """How event time goes on.

    Args:
        idle_ms: after how long without rows a stream is idle, so that others do not wait for it; 0 for never.
        gap: after how many rows there is a watermark; 0 for one after each batch.
    """

    idle_ms: int = 0
    gap: int = 0


def of_connector(node: TableT) -> TableT:
    """The table with the options that its connector is asked for."""
    if not any(key in _KEYS for key, _ in node.options):
        return node
    return replace(node, options=tuple((key, value) for key, value in node.options if key not in _KEYS))


def watermark_options(node: Node, idle_ms: int) -> WatermarkOptions:
    """How event time goes on above a node. `idle_ms`: what the session says of idleness."""
    while isinstance(node, Unary):
        node = node.input
    if not isinstance(node, Scan):
        return WatermarkOptions(idle_ms)
    options = _read(node)
    for key in _ALIGNMENT:
        if options.contains_key(key):
            raise UnsupportedError(
                f"option '{key}' of table {'.'.join(node.path)} is not supported: watermarks of tables are not "
                "aligned. Leave it out, or read the source as a DataStream with with_watermark_alignment"
            )
    gap = 0
    if options.read(EMIT_STRATEGY) == "ON-EVENT":
        gap = options.read(ON_EVENT_GAP)
        if gap <= 0:
            raise ValidationError(f"Invalid value for option '{ON_EVENT_GAP.key()}': it must be above 0, not {gap}")
    own = options.contains_key(IDLE_TIMEOUT_MS.key())
    return WatermarkOptions(options.read(IDLE_TIMEOUT_MS) if own else idle_ms, gap)


def parallelism_of(node: Scan | Write) -> int | None:
    """The parallelism that a table asks for; None for that of the job."""
    option = SCAN_PARALLELISM if isinstance(node, Scan) else SINK_PARALLELISM
    options = _read(node)
    if not options.contains_key(option.key()):
        return None
    found = options.read(option)
    if found <= 0:
        raise ValidationError(
            f"Invalid configured parallelism {found} for table '{'.'.join(node.path)}': '{option.key()}' must be "
            "above 0"
        )
    return found


def _read(node: Scan | Write) -> Configuration:
    return Configuration.from_dict(dict(node.options))
