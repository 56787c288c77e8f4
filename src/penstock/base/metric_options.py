"""The options of metrics: which ones to measure, who reports them, and how they are named."""

from __future__ import annotations

from penstock.base.option_types import POSITIVE, Option, option, unset
from penstock.base.value_types import BOOLEAN, DURATION_MS, STRING, choice

# Metrics -------------------------------------------------------------------------------------------------------------

METRICS_REPORTERS = unset(
    "metrics.reporters",
    STRING,
    "The names, with commas between, of the reporters to start that `metrics.reporter.<name>.*` describe; by default "
    "all of them.",
)
TRACE_REPORTERS = unset(
    "traces.reporters",
    STRING,
    "The names, with commas between, of the reporters of traces to start that `traces.reporter.<name>.*` describe; by "
    "default all of them.",
)
LATENCY_INTERVAL_MS = option(
    "metrics.latency.interval",
    DURATION_MS,
    0,
    "How often sources send markers through a streaming job, whose ages say how long records take to each operator. "
    "With 0 they send none. Jobs in steps have none.",
)
LATENCY_GRANULARITY = option(
    "metrics.latency.granularity",
    choice("single", "operator", "subtask"),
    "operator",
    "Whether each operator has one histogram of these ages, or one for each source, or for each subtask of a source.",
)
LATENCY_HISTORY_SIZE = option(
    "metrics.latency.history-size", POSITIVE, 128, "How many ages are remembered for each of these histograms."
)
METRICS_SCOPE_DELIMITER = option(
    "metrics.scope.delimiter", STRING, ".", "What stands between the parts of a metric's name, where it has no labels."
)


def _scope_format(key: str, default: str, whose: str) -> Option[str]:
    return option(key, STRING, default, f"How the name of a metric of {whose} begins, for reporters without labels.")


#: by Flink's logical scope
SCOPE_FORMATS = {
    "jobmanager": _scope_format("metrics.scope.jm", "<host>.jobmanager", "the driver"),
    "jobmanager.job": _scope_format("metrics.scope.jm-job", "<host>.jobmanager.<job_name>", "a job"),
    "jobmanager.job.operator": _scope_format(
        "metrics.scope.jm-operator", "<host>.jobmanager.<job_name>.<operator_name>", "an operator's part in the driver"
    ),
    "taskmanager": _scope_format("metrics.scope.tm", "<host>.taskmanager.<tm_id>", "a worker"),
    "taskmanager.job": _scope_format(
        "metrics.scope.tm-job", "<host>.taskmanager.<tm_id>.<job_name>", "a job on a worker"
    ),
    "taskmanager.job.task": _scope_format(
        "metrics.scope.task", "<host>.taskmanager.<tm_id>.<job_name>.<task_name>.<subtask_index>", "a subtask"
    ),
    "taskmanager.job.task.operator": _scope_format(
        "metrics.scope.operator",
        "<host>.taskmanager.<tm_id>.<job_name>.<operator_name>.<subtask_index>",
        "an operator in a subtask",
    ),
}


def _rocksdb_metric(key: str, metric: str) -> Option[bool]:
    return option(key, BOOLEAN, False, f"Whether each operator with RocksDB reports {metric}.")


#: RocksDB's metrics of a store, by RocksDB's own names without `rocksdb.`
ROCKSDB_METRICS = {
    key.rpartition(".")[2]: _rocksdb_metric(key, metric)
    for key, metric in {
        "state.backend.rocksdb.metrics.num-immutable-mem-table": "how many write buffers wait for their file",
        "state.backend.rocksdb.metrics.mem-table-flush-pending": "whether a write buffer is about to go to a file",
        "state.backend.rocksdb.metrics.compaction-pending": "whether files are about to be merged",
        "state.backend.rocksdb.metrics.background-errors": "how many errors its background work had",
        "state.backend.rocksdb.metrics.cur-size-active-mem-table": "the bytes of the write buffer in use",
        "state.backend.rocksdb.metrics.cur-size-all-mem-tables": "the bytes of write buffers that are not in files",
        "state.backend.rocksdb.metrics.size-all-mem-tables": "the bytes of all write buffers, pinned ones too",
        "state.backend.rocksdb.metrics.num-entries-active-mem-table": "how many entries the write buffer in use has",
        "state.backend.rocksdb.metrics.num-entries-imm-mem-tables": "how many entries the waiting write buffers have",
        "state.backend.rocksdb.metrics.num-deletes-active-mem-table": "how many of the first are deletions",
        "state.backend.rocksdb.metrics.num-deletes-imm-mem-tables": "how many of the second are deletions",
        "state.backend.rocksdb.metrics.estimate-num-keys": "about how many rows there are",
        "state.backend.rocksdb.metrics.estimate-table-readers-mem": "about how many bytes it takes to read files, "
        "without the block cache",
        "state.backend.rocksdb.metrics.num-snapshots": "how many snapshots are not released",
        "state.backend.rocksdb.metrics.num-live-versions": "how many versions of its set of files are in use",
        "state.backend.rocksdb.metrics.estimate-live-data-size": "about how many bytes of its files are live",
        "state.backend.rocksdb.metrics.total-sst-files-size": "the bytes of all files",
        "state.backend.rocksdb.metrics.live-sst-files-size": "the bytes of the files of the newest version",
        "state.backend.rocksdb.metrics.estimate-pending-compaction-bytes": "about how many bytes are to be merged",
        "state.backend.rocksdb.metrics.num-running-compactions": "how many merges run",
        "state.backend.rocksdb.metrics.num-running-flushes": "how many write buffers are being written",
        "state.backend.rocksdb.metrics.actual-delayed-write-rate": "to how many bytes a second writing is held down; "
        "0 for not at all",
        "state.backend.rocksdb.metrics.is-write-stopped": "whether writing is stopped",
        "state.backend.rocksdb.metrics.block-cache-capacity": "the bytes that the block cache may take",
        "state.backend.rocksdb.metrics.block-cache-usage": "the bytes that the block cache takes",
        "state.backend.rocksdb.metrics.block-cache-pinned-usage": "the bytes that are pinned in the block cache",
        "state.backend.rocksdb.metrics.num-files-at-level": "how many files each level has",
    }.items()
}

STATE_LATENCY_ENABLED = option(
    "state.latency-track.keyed-state-enabled",
    BOOLEAN,
    False,
    "Whether streaming jobs measure how long their functions' accesses to keyed state take.",
)
STATE_LATENCY_SAMPLE_INTERVAL = option(
    "state.latency-track.sample-interval", POSITIVE, 100, "Of how many accesses of a kind one is timed."
)
STATE_LATENCY_HISTORY_SIZE = option(
    "state.latency-track.history-size", POSITIVE, 128, "How many times of each kind are remembered for a histogram."
)
STATE_LATENCY_NAME_AS_VARIABLE = option(
    "state.latency-track.state-name-as-variable",
    BOOLEAN,
    True,
    "Whether the state's name is a label (`state_name`) of these metrics, rather than a part of their names.",
)
