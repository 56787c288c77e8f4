"""Unknown configuration keys: typos, and Flink options that have no effect here.

Only keys under the prefixes of Flink and Penstock are checked. All others belong to the user. The keys of table options
are listed here, because these options are read where they take effect and are not in the registry of options.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from penstock.base.options import REGISTRY

#: options that take effect
TABLE_OPTIONS: Final = frozenset(
    {
        "table.builtin-catalog-name",
        "table.builtin-database-name",
        "table.display.max-column-width",
        "table.dml-sync",
        "table.exec.async-lookup.buffer-capacity",
        "table.exec.async-lookup.key-ordered-enabled",
        "table.exec.async-lookup.output-mode",
        "table.exec.async-lookup.timeout",
        "table.exec.async-ml-predict.max-concurrent-operations",
        "table.exec.async-ml-predict.output-mode",
        "table.exec.async-ml-predict.timeout",
        "table.exec.async-scalar.buffer-capacity",
        "table.exec.async-scalar.max-attempts",
        "table.exec.async-scalar.max-concurrent-operations",
        "table.exec.async-scalar.retry-delay",
        "table.exec.async-scalar.retry-strategy",
        "table.exec.async-scalar.timeout",
        "table.exec.async-table.max-concurrent-operations",
        "table.exec.async-table.max-retries",
        "table.exec.async-table.retry-delay",
        "table.exec.async-table.retry-strategy",
        "table.exec.async-table.timeout",
        "table.exec.emit.allow-lateness",
        "table.exec.emit.early-fire.delay",
        "table.exec.emit.early-fire.enabled",
        "table.exec.emit.late-fire.delay",
        "table.exec.emit.late-fire.enabled",
        "table.exec.legacy-cast-behaviour",
        "table.exec.mini-batch.allow-latency",
        "table.exec.mini-batch.enabled",
        "table.exec.mini-batch.size",
        "table.exec.resource.default-parallelism",
        "table.exec.sink.keyed-shuffle",
        "table.exec.sink.nested-constraint-enforcer",
        "table.exec.sink.not-null-enforcer",
        "table.exec.sink.require-on-conflict",
        "table.exec.sink.type-length-enforcer",
        "table.exec.sink.upsert-materialize",
        "table.exec.source.cdc-events-duplicate",
        "table.exec.source.idle-timeout",
        "table.exec.state.ttl",
        "table.local-time-zone",
        "table.optimizer.excluded-optimizations",
        "table.optimizer.non-deterministic-update.strategy",
        "table.optimizer.reuse-sub-plan-enabled",
        "table.plan.compile.catalog-objects",
        "table.plan.force-recompile",
        "table.plan.restore.catalog-objects",
    }
)

#: options of Flink 2.3 that have no effect here
FLINK_TABLE_OPTIONS: Final = frozenset(
    {
        "materialized-table.default-start-mode",
        "table.catalog-modification.listeners",
        "table.catalog-store.kind",
        "table.column-expansion-strategy",
        "table.dynamic-table-options.enabled",
        "table.exec.async-state.enabled",
        "table.exec.async-vector-search.max-concurrent-operations",
        "table.exec.async-vector-search.output-mode",
        "table.exec.async-vector-search.timeout",
        "table.exec.deduplicate.insert-update-after-sensitive-enabled",
        "table.exec.deduplicate.mini-batch.compact-changes-enabled",
        "table.exec.delta-join.cache-enabled",
        "table.exec.delta-join.left.cache-size",
        "table.exec.delta-join.right.cache-size",
        "table.exec.disabled-operators",
        "table.exec.interval-join.min-cleanup-interval",
        "table.exec.local-hash-agg.adaptive.distinct-value-rate-threshold",
        "table.exec.local-hash-agg.adaptive.enabled",
        "table.exec.local-hash-agg.adaptive.sampling-threshold",
        "table.exec.operator-fusion-codegen.enabled",
        "table.exec.rank.topn-cache-size",
        "table.exec.resource.external-buffer-memory",
        "table.exec.resource.hash-agg.memory",
        "table.exec.resource.hash-join.memory",
        "table.exec.resource.sort.memory",
        "table.exec.simplify-operator-name-enabled",
        "table.exec.sink.rowtime-inserter",
        "table.exec.sink.upsert-materialize-strategy.adaptive.threshold.high",
        "table.exec.sink.upsert-materialize-strategy.adaptive.threshold.low",
        "table.exec.sink.upsert-materialize-strategy.type",
        "table.exec.sort.async-merge-enabled",
        "table.exec.sort.default-limit",
        "table.exec.sort.max-num-file-handles",
        "table.exec.sort.non-temporal.enabled",
        "table.exec.spill-compression.block-size",
        "table.exec.spill-compression.enabled",
        "table.exec.uid.format",
        "table.exec.uid.generation",
        "table.exec.unbounded-over.version",
        "table.exec.window-agg.buffer-size-limit",
        "table.generated-code.max-length",
        "table.generated-code.max-members",
        "table.legacy-nested-row-nullability",
        "table.optimizer.adaptive-broadcast-join.strategy",
        "table.optimizer.agg-phase-strategy",
        "table.optimizer.bushy-join-reorder-threshold",
        "table.optimizer.delta-join.strategy",
        "table.optimizer.distinct-agg.split.bucket-num",
        "table.optimizer.distinct-agg.split.enabled",
        "table.optimizer.dynamic-filtering.enabled",
        "table.optimizer.incremental-agg-enabled",
        "table.optimizer.join-reorder-enabled",
        "table.optimizer.join.broadcast-threshold",
        "table.optimizer.multi-join.enabled",
        "table.optimizer.multiple-input-enabled",
        "table.optimizer.plan-cache.enabled",
        "table.optimizer.ptf.max-tables",
        "table.optimizer.reuse-optimize-block-with-digest-enabled",
        "table.optimizer.reuse-sink-enabled",
        "table.optimizer.reuse-source-enabled",
        "table.optimizer.runtime-filter.enabled",
        "table.optimizer.runtime-filter.max-build-data-size",
        "table.optimizer.runtime-filter.min-filter-ratio",
        "table.optimizer.runtime-filter.min-probe-data-size",
        "table.optimizer.skewed-join-optimization.skewed-factor",
        "table.optimizer.skewed-join-optimization.skewed-threshold",
        "table.optimizer.skewed-join-optimization.strategy",
        "table.optimizer.source.report-statistics-enabled",
        "table.optimizer.sql2rel.project-merge.enabled",
        "table.optimizer.union-all-as-breakpoint-enabled",
        "table.query-start.current-database",
        "table.query-start.epoch-time",
        "table.query-start.local-time",
        "table.refresh-mode.freshness-threshold",
        "table.resources.download-dir",
        "table.rtas-ctas.atomicity-enabled",
        "table.secret-store.kind",
        "table.sql-dialect",
    }
)


_PREFIXES: Final = (
    "cluster.",
    "execution.",
    "heartbeat.",
    "high-availability",
    "jobmanager.",
    "jobstore.",
    "materialized-table.",
    "metrics.",
    "parallelism.",
    "penstock.",
    "pipeline.",
    "python.",
    "rest.",
    "restart-strategy",
    "slot.",
    "state.",
    "table.",
    "taskmanager.",
    "traces.",
    "web.",
)

#: Options of reporters that the user names; the code that creates the reporters checks them.
_NAMED: Final = ("metrics.reporter.", "traces.reporter.")

#: Flink's keys that newer ones have replaced, in Flink and here.
_OLDER_NAMES: Final = {
    "state.backend": "state.backend.type",
    "state.backend.local-recovery": "execution.state-recovery.from-local",
    "state.checkpoints.dir": "execution.checkpointing.dir",
    "state.checkpoints.num-retained": "execution.checkpointing.num-retained",
    "state.savepoints.dir": "execution.checkpointing.savepoint-dir",
    "state.storage.fs.memory-threshold": "execution.checkpointing.data-inline-threshold",
    "execution.buffer-timeout": "execution.buffer-timeout.interval",
    "execution.checkpointing.unaligned": "execution.checkpointing.unaligned.enabled",
    "execution.savepoint.ignore-unclaimed-state": "execution.state-recovery.ignore-unclaimed-state",
    "execution.savepoint.path": "execution.state-recovery.path",
    "execution.savepoint-restore-mode": "execution.state-recovery.claim-mode",
    "high-availability": "high-availability.type",
    "pipeline.operator-chaining": "pipeline.operator-chaining.enabled",
    "restart-strategy": "restart-strategy.type",
}

#: Flink's options that Penstock lacks: keys, and prefixes of keys, which end in a dot or a hyphen.
_NOT_HERE: Final = (
    "cluster.",
    "execution.batch-shuffle-mode",
    "execution.batch.adaptive.",
    "execution.batch.speculative.",
    "execution.checkpointing.checkpoints-after-tasks-finish",
    "execution.checkpointing.incremental",
    "execution.checkpointing.interval-during-backlog",
    "execution.checkpointing.storage",
    "execution.shutdown-on-",
    "execution.sorted-inputs.",
    "high-availability.",
    "jobmanager.",
    "metrics.",
    "pipeline.auto-type-registration",
    "pipeline.cached-files",
    "pipeline.classpaths",
    "pipeline.closure-cleaner-level",
    "pipeline.force-",
    "pipeline.generic-types",
    "pipeline.jars",
    "pipeline.object-reuse",
    "pipeline.registered-",
    "pipeline.serialization-config",
    "pipeline.vertex-",
    "pipeline.watermark-alignment.",
    "python.client.executable",
    "python.execution-mode",
    "python.fn-execution.",
    "python.map-state.",
    "python.metric.",
    "python.operator-chaining.",
    "python.profile.",
    "python.requirements",
    "python.state.",
    "python.systemenv.",
    "rest.",
    "slot.idle.",
    "state.backend.changelog.",
    "state.backend.forst.",
    "state.backend.incremental",
    "state.backend.latency-track.",
    "state.backend.rocksdb.",  # includes memory.high-prio-pool-ratio: rocksdict has no such cache pool
    "state.changelog.",
    "state.latency-track.",
    "taskmanager.",
    "web.",
)

#: The least similarity (0 to 1) of a key to be suggested, and of one that counts as a typo.
_LIKENESS_MIN: Final = 0.75
_TYPING_ERROR_MIN: Final = 0.9


def unknown_options(keys: Iterable[str]) -> dict[str, str]:
    """Return a message for each key under a prefix of Flink's or Penstock's that is not an option."""
    return {key: _told(key) for key in sorted(keys) if _is_unknown(key)}


def _is_unknown(key: str) -> bool:
    is_known = key in REGISTRY or key in TABLE_OPTIONS
    return key.startswith(_PREFIXES) and not key.startswith(_NAMED) and not is_known


def _told(key: str) -> str:
    newer = _OLDER_NAMES.get(key)
    if newer is not None:
        return f"option {key} is an older name and has no effect: set {newer} instead"
    if key in FLINK_TABLE_OPTIONS:
        return f"option {key} exists in Flink but not in Penstock, and has no effect"
    nearest = difflib.get_close_matches(key, [*REGISTRY, *TABLE_OPTIONS], n=1, cutoff=_LIKENESS_MIN)
    if _is_of_flink(key) and not (nearest and _likeness(key, nearest[0]) > _TYPING_ERROR_MIN):
        return f"option {key} exists in Flink but not in Penstock, and has no effect"
    hint = f": did you mean {nearest[0]}?" if nearest else ""
    return f"option {key} is unknown, and has no effect{hint}"


def _is_of_flink(key: str) -> bool:
    return any(key == begin or (begin.endswith((".", "-")) and key.startswith(begin)) for begin in _NOT_HERE)


def _likeness(name: str, other: str) -> float:
    return difflib.SequenceMatcher(None, name, other).ratio()
