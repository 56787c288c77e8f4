"""The session options that control how streams are planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.base.config_options import ConfigOption
from penstock.base.configuration import Configuration
from penstock.base.options import STATE_BACKEND
from penstock.base.value_types import BOOLEAN, DURATION_MS, INTEGER
from penstock.table.data.errors import ValidationError
from penstock.table.streaming.planning.optimizations import EXCLUDED, Optimization
from penstock.table.streaming.rows.bundles import MiniBatch
from penstock.table.streaming.sinks.sink_options import BY_DEFAULT, SinkOptions, sink_options
from penstock.table.streaming.windows.emit_options import AT_THE_END, Emission, emission

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
