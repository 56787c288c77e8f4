"""The session options that control how streams are planned.

Optimizations of the planner that a session can exclude: a query then runs in the general form.

Excluding one never changes the rows of a result. It shows whether an unexpected result comes from an optimization, and
lets tests compare each optimized form with the general one.

The planner's access to lookup tables.

The options of a session for writing to tables.

Options that let windows in GROUP BY emit results before they end, and again for late rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from penstock.base.config_options import BOOLEAN, DURATION_MS, INTEGER, ConfigOption, build_list_type, choice
from penstock.base.configuration import Configuration
from penstock.base.options import STATE_BACKEND
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import Scan
from penstock.sql.stream.rows.bundles import MiniBatch
from penstock.sql.tables.lookup import TableLookup


class Optimization(Enum):
    """An optimization. Its value is its name in the option."""

    #: window aggregates with Arrow kernels, over panes that windows share
    COLUMN_WINDOWS = "column-windows"
    #: an aggregate directly above a window table assigns the windows of its rows itself
    WINDOWS_IN_AGGREGATES = "windows-in-aggregates"
    #: append-only joins that store rows as columns
    COLUMN_JOINS = "column-joins"
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


@dataclass(frozen=True, slots=True)
class Lookups:
    """`find` returns the lookup of a table by the indices of its key columns; `options` are the session's."""

    find: Callable[[Scan, Sequence[int]], TableLookup] = _none
    options: Mapping[str, str] = field(default_factory=dict)
