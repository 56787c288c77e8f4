"""Unknown configuration keys: typos, and Flink options that have no effect here.

Only keys under the prefixes of Flink and Penstock are checked. All others belong to the user.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from penstock.base.options import REGISTRY
from penstock.base.table_options import FLINK_TABLE_OPTIONS, TABLE_OPTIONS

_PREFIXES: Final = (
    "cluster.",
    "execution.",
    "heartbeat.",
    "high-availability",
    "jobmanager.",
    "jobstore.",
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
