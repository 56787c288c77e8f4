"""Options that control how streams are planned: session options, table options, optimizations, and access to lookups.

`Optimization` has the optimizations of the planner that a session can exclude: a query then runs in the general form.
Excluding one never changes the rows of a result. It shows whether an unexpected result comes from an optimization, and
lets tests compare each optimized form with the general one.

`SinkOptions` are the options of a session for writing to tables. `Emission` has the options that let windows in GROUP
BY emit results before they end, and again for late rows. `Lookups` is the planner's access to lookup tables.

`WatermarkOptions` and `read_parallelism` have the table options that no connector handles: the watermarks of a scanned
table, and parallelism. They are set in WITH or in the hint OPTIONS. See Flink's document "Sources & Sinks" for
`scan.watermark.*`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, TypeVar

from penstock.base.config_options import BOOLEAN, DURATION_MS, INTEGER, STRING, ConfigOption, build_list_type, choice
from penstock.base.configuration import Configuration
from penstock.base.options import STATE_BACKEND
from penstock.base.watermark_strategy import WatermarkAlignment, WatermarkStrategy
from penstock.sql.catalogs.ddl import NULL_TIME, NULL_TIME_TABLE
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import Node, Scan, Unary, Write
from penstock.sql.stream.rows.state_ttl import MiniBatch
from penstock.sql.tables.connector import TableLookup


class Optimization(Enum):
    """An optimization. Its value is its name in the option."""

    #: window aggregates with Arrow kernels, over panes that windows share
    COLUMN_WINDOWS = "column-windows"
    #: an aggregate directly above a window table assigns the windows of its rows itself
    WINDOWS_IN_AGGREGATES = "windows-in-aggregates"
    #: append-only joins that store rows as columns
    COLUMN_JOINS = "column-joins"
    #: group aggregates with their state in columns
    COLUMN_GROUPS = "column-groups"
    #: joins that find the previous row of an update by its key
    KEYED_JOINS = "keyed-joins"
    #: top-N and deduplication that store rows as columns
    COLUMN_RANKS = "column-ranks"
    #: top-N over updates that only move rows up, without UPDATE_BEFORE
    UPDATING_RANKS = "updating-ranks"
    #: no step for DISTINCT if no two rows are equal
    DISTINCT_REMOVAL = "distinct-removal"
    #: filters in the step that completes upserts
    FILTERED_UPSERTS = "filtered-upserts"
    #: deletions with only their key, for a sink that deletes by key
    KEYED_DELETIONS = "keyed-deletions"
    #: filters, limits, columns and fields that are pushed down into tables
    PUSH_DOWN = "push-down"


EXCLUDED: Final[ConfigOption[list[str]]] = ConfigOption(
    "table.optimizer.excluded-optimizations",
    build_list_type(choice(*(optimization.value for optimization in Optimization))),
    [],
)


NOT_NULL: Final = "table.exec.sink.not-null-enforcer"
LENGTH: Final = "table.exec.sink.type-length-enforcer"
NESTED: Final = "table.exec.sink.nested-constraint-enforcer"
MATERIALIZE: Final = "table.exec.sink.upsert-materialize"
ON_CONFLICT: Final = "table.exec.sink.require-on-conflict"
SHUFFLE: Final = "table.exec.sink.keyed-shuffle"
#: the values of each option, the default first
_VALUES: Final = {
    NOT_NULL: ("ERROR", "DROP"),
    LENGTH: ("IGNORE", "TRIM_PAD", "ERROR"),
    NESTED: ("IGNORE", "ROWS", "ROWS_AND_COLLECTIONS"),
    MATERIALIZE: ("AUTO", "NONE", "FORCE"),
    ON_CONFLICT: ("TRUE", "FALSE"),
    SHUFFLE: ("AUTO", "NONE", "FORCE"),
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options. See Flink's document "Configuration", section "Execution Options" of tables."""

    #: whether rows with NULL in a NOT NULL column are dropped; otherwise they fail the job
    drops_null: bool = False
    #: how strings and bytes of another length are handled: IGNORE, TRIM_PAD or ERROR
    length: str = "IGNORE"
    #: where constraints of nested types are enforced: IGNORE, ROWS or ROWS_AND_COLLECTIONS
    nested: str = "IGNORE"
    #: when the last row of a key is determined: AUTO, NONE or FORCE
    materialize: str = "AUTO"
    requires_on_conflict: bool = True
    #: when rows are shuffled by the primary key: AUTO, NONE or FORCE
    shuffle: str = "AUTO"


BY_DEFAULT: Final = SinkOptions()


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Return the options of a session. Raises `ValidationError` for unknown values."""
    settings = {}
    for key, values in _VALUES.items():
        value = options.get(key, values[0]).upper()
        if value not in values:
            raise ValidationError(f"{key} can be {', '.join(values)}, and not '{options[key]}'")
        settings[key] = value
    return SinkOptions(
        settings[NOT_NULL] == "DROP",
        settings[LENGTH],
        settings[NESTED],
        settings[MATERIALIZE],
        settings[ON_CONFLICT] == "TRUE",
        settings[SHUFFLE],
    )


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


STATE_TTL_MS: Final = ConfigOption("table.exec.state.ttl", DURATION_MS, 0)
MINI_BATCH: Final = ConfigOption("table.exec.mini-batch.enabled", BOOLEAN, False)
LATENCY_MS: Final = ConfigOption("table.exec.mini-batch.allow-latency", DURATION_MS, 0)
IDLE_TIMEOUT_MS: Final = ConfigOption("table.exec.source.idle-timeout", DURATION_MS, 0)
PARALLELISM: Final = ConfigOption("table.exec.resource.default-parallelism", INTEGER, -1)
DUPLICATES: Final = ConfigOption("table.exec.source.cdc-events-duplicate", BOOLEAN, False)
SIZE: Final = ConfigOption("table.exec.mini-batch.size", INTEGER, -1)


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How streams are planned.

    Args:
        state_ttl_ms: how long state lives after it was written; 0 for no expiration.
        mini_batch: how aggregates buffer rows; None to process each batch as it arrives.
        idle_ms: the time without rows after which a table with a watermark is idle; 0 for never.
        parallelism: the parallelism of all steps; None for the job's.
        has_duplicates: whether tables may repeat changes.
        sinks: how tables are written.
        is_in_memory: whether state is kept in memory rather than in RocksDB.
        emission: when windows in GROUP BY emit results other than at their end.
        excluded: the optimizations that the planner leaves out.
    """

    state_ttl_ms: int = 0
    mini_batch: MiniBatch | None = None
    idle_ms: int = 0
    parallelism: int | None = None
    has_duplicates: bool = False
    sinks: SinkOptions = BY_DEFAULT
    is_in_memory: bool = True
    emission: Emission = AT_THE_END
    excluded: frozenset[Optimization] = frozenset()

    def allows(self, optimization: Optimization) -> bool:
        """Return whether the planner may use an optimization."""
        return optimization not in self.excluded

    def lives(self, hinted_ms: int | None) -> int:
        """Return how long (ms) state lives. `hinted_ms`: the value of a hint."""
        return self.state_ttl_ms if hinted_ms is None else hinted_ms


DEFAULTS: Final = PlanOptions()


def plan_options(options: Mapping[str, str]) -> PlanOptions:
    """Return the options of a session. Raises `ConfigurationError` or `ValidationError` for invalid values."""
    read = Configuration.from_dict(dict(options)).read
    mini_batch = None
    if read(MINI_BATCH):
        mini_batch = MiniBatch(read(LATENCY_MS), read(SIZE))
        if mini_batch.latency_ms <= 0:
            raise ValidationError(f"If {MINI_BATCH.key()} is 'true', {LATENCY_MS.key()} must be greater than 0.")
        if mini_batch.size <= 0:
            raise ValidationError(f"Key: '{SIZE.key()}' , default: {SIZE.default_value()} must be > 0.")
    parallelism = read(PARALLELISM)
    return PlanOptions(
        read(STATE_TTL_MS),
        mini_batch,
        read(IDLE_TIMEOUT_MS),
        parallelism if parallelism > 0 else None,
        read(DUPLICATES),
        sink_options(options),
        read(STATE_BACKEND) != "rocksdb",
        emission(options, read(STATE_TTL_MS)),
        frozenset(Optimization(name) for name in read(EXCLUDED)),
    )


def _none(node: Scan, key: Sequence[int]) -> TableLookup:
    raise ValidationError(f"table {'.'.join(node.path)} cannot be asked for the rows of keys")


def _no_vectors(node: Scan, column: int) -> Any:
    raise ValidationError(f"table {'.'.join(node.path)} cannot be searched for vectors")


@dataclass(frozen=True, slots=True)
class Lookups:
    """`find` returns the lookup of a table by the indices of its key columns; `options` are the session's."""

    find: Callable[[Scan, Sequence[int]], TableLookup] = _none
    options: Mapping[str, str] = field(default_factory=dict)
    #: returns the search for vectors of a column of a table, a `VectorSearchFunction`
    vectors: Callable[[Scan, int], Any] = _no_vectors


EMIT_STRATEGY: Final = ConfigOption("scan.watermark.emit.strategy", choice("ON-PERIODIC", "ON-EVENT"), "ON-PERIODIC")
ON_EVENT_GAP: Final = ConfigOption("scan.watermark.emit.on-event.gap", INTEGER, 1)
SCAN_IDLE_TIMEOUT_MS: Final = ConfigOption("scan.watermark.idle-timeout", DURATION_MS, 0)
SCAN_PARALLELISM: Final = ConfigOption("scan.parallelism", INTEGER, 0)
SINK_PARALLELISM: Final = ConfigOption("sink.parallelism", INTEGER, 0)
ALIGNMENT_GROUP: Final = ConfigOption("scan.watermark.alignment.group", STRING, "")
MAX_DRIFT_MS: Final = ConfigOption("scan.watermark.alignment.max-drift", DURATION_MS, 0)
UPDATE_INTERVAL_MS: Final = ConfigOption("scan.watermark.alignment.update-interval", DURATION_MS, 1_000)
_ALIGNMENT: Final[tuple[ConfigOption[Any], ...]] = (ALIGNMENT_GROUP, MAX_DRIFT_MS, UPDATE_INTERVAL_MS)
_ALL: Final[tuple[ConfigOption[Any], ...]] = (
    EMIT_STRATEGY,
    ON_EVENT_GAP,
    SCAN_IDLE_TIMEOUT_MS,
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
    own = options.contains_key(SCAN_IDLE_TIMEOUT_MS.key())
    return WatermarkOptions(options.read(SCAN_IDLE_TIMEOUT_MS) if own else idle_ms, gap, _alignment(node, options))


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
