"""The options of metrics: which ones to measure, who reports them, and how they are named."""

from __future__ import annotations

from penstock.base.config_options import BOOLEAN, DURATION_MS, POSITIVE, STRING, Option, choice, option, unset

# Metrics -------------------------------------------------------------------------------------------------------------

METRICS_REPORTERS = unset(
    "metrics.reporters",
    STRING,
    "The names of the reporters to start, separated by commas, each configured by `metrics.reporter.<name>.*`. If "
    "unset, all of them.",
)
TRACE_REPORTERS = unset(
    "traces.reporters",
    STRING,
    "The names of the trace reporters to start, separated by commas, each configured by `traces.reporter.<name>.*`. "
    "If unset, all of them.",
)
LATENCY_INTERVAL_MS = option(
    "metrics.latency.interval",
    DURATION_MS,
    0,
    "The interval at which sources send latency markers through a streaming job, whose ages measure the latency to "
    "each operator. 0 disables them. MICRO_BATCH and BATCH jobs have none.",
)
LATENCY_GRANULARITY = option(
    "metrics.latency.granularity",
    choice("single", "operator", "subtask"),
    "operator",
    "Whether each operator has one latency histogram, one per source, or one per subtask of a source.",
)
LATENCY_HISTORY_SIZE = option(
    "metrics.latency.history-size", POSITIVE, 128, "The number of latencies kept for each of these histograms."
)
METRICS_SCOPE_DELIMITER = option(
    "metrics.scope.delimiter",
    STRING,
    ".",
    "The delimiter between the parts of a metric's name, for reporters without labels.",
)


def _scope_format(key: str, default: str, whose: str) -> Option[str]:
    return option(key, STRING, default, f"The prefix of the metrics of {whose}, for reporters without labels.")


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
        "state.backend.rocksdb.metrics.num-immutable-mem-table": "the number of write buffers not yet flushed",
        "state.backend.rocksdb.metrics.mem-table-flush-pending": "whether a flush is pending",
        "state.backend.rocksdb.metrics.compaction-pending": "whether a compaction is pending",
        "state.backend.rocksdb.metrics.background-errors": "the number of background errors",
        "state.backend.rocksdb.metrics.cur-size-active-mem-table": "the size of the active write buffer",
        "state.backend.rocksdb.metrics.cur-size-all-mem-tables": "the size of the active and unflushed write buffers",
        "state.backend.rocksdb.metrics.size-all-mem-tables": "the size of all write buffers, including pinned ones",
        "state.backend.rocksdb.metrics.num-entries-active-mem-table": "the number of entries in the active write "
        "buffer",
        "state.backend.rocksdb.metrics.num-entries-imm-mem-tables": "the number of entries in the unflushed write "
        "buffers",
        "state.backend.rocksdb.metrics.num-deletes-active-mem-table": "the number of deletions in the active write "
        "buffer",
        "state.backend.rocksdb.metrics.num-deletes-imm-mem-tables": "the number of deletions in the unflushed write "
        "buffers",
        "state.backend.rocksdb.metrics.estimate-num-keys": "the approximate number of keys",
        "state.backend.rocksdb.metrics.estimate-table-readers-mem": "the approximate memory for reading files, "
        "without the block cache",
        "state.backend.rocksdb.metrics.num-snapshots": "the number of unreleased snapshots",
        "state.backend.rocksdb.metrics.num-live-versions": "the number of live versions of its set of files",
        "state.backend.rocksdb.metrics.estimate-live-data-size": "the approximate size of live data",
        "state.backend.rocksdb.metrics.total-sst-files-size": "the size of all files",
        "state.backend.rocksdb.metrics.live-sst-files-size": "the size of the files of the latest version",
        "state.backend.rocksdb.metrics.estimate-pending-compaction-bytes": "the approximate number of bytes to compact",
        "state.backend.rocksdb.metrics.num-running-compactions": "the number of running compactions",
        "state.backend.rocksdb.metrics.num-running-flushes": "the number of running flushes",
        "state.backend.rocksdb.metrics.actual-delayed-write-rate": "the delayed write rate in bytes per second; 0 if "
        "writes are not delayed",
        "state.backend.rocksdb.metrics.is-write-stopped": "whether writes are stopped",
        "state.backend.rocksdb.metrics.block-cache-capacity": "the capacity of the block cache",
        "state.backend.rocksdb.metrics.block-cache-usage": "the size of the block cache",
        "state.backend.rocksdb.metrics.block-cache-pinned-usage": "the size of the pinned entries in the block cache",
        "state.backend.rocksdb.metrics.num-files-at-level": "the number of files at each level",
    }.items()
}

STATE_LATENCY_ENABLED = option(
    "state.latency-track.keyed-state-enabled",
    BOOLEAN,
    False,
    "Whether streaming jobs measure the latency of their functions' accesses to keyed state.",
)
STATE_LATENCY_SAMPLE_INTERVAL = option(
    "state.latency-track.sample-interval", POSITIVE, 100, "With n, one in n accesses of a kind is timed."
)
STATE_LATENCY_HISTORY_SIZE = option(
    "state.latency-track.history-size", POSITIVE, 128, "The number of latencies of each kind kept for a histogram."
)
STATE_LATENCY_NAME_AS_VARIABLE = option(
    "state.latency-track.state-name-as-variable",
    BOOLEAN,
    True,
    "Whether the state's name is a label (`state_name`) of these metrics instead of a part of their names.",
)
