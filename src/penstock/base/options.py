"""Every configuration option that Penstock reads: its key, type, default and purpose.

Read one with `configuration.read(PARALLELISM)`. Names end in the unit of the value they give: `_MS` milliseconds,
`_BYTES` bytes. An option without a default gives None when it is not set. Keys are Flink's where Flink has the option.
"""

from __future__ import annotations

from typing import Any, TypeVar

from penstock.base import value_types
from penstock.base.config_options import ConfigOption
from penstock.base.value_types import BOOLEAN, DURATION_MS, FLOAT, INTEGER, MAPPING, STRING, ValueType, choice

__all__ = ["REGISTRY", "Option"]

T = TypeVar("T")

Option = ConfigOption

REGISTRY: dict[str, Option[Any]] = {}
"""All options by key, in the order of this file."""


def _option(key: str, value_type: ValueType[T], default: T, description: str) -> Option[T]:
    option = Option(key, value_type, value_type.convert(default), description)
    REGISTRY[key] = option
    return option


def _unset(key: str, value_type: ValueType[T], description: str) -> Option[T | None]:
    option: Option[T | None] = Option(key, value_type, None, description)
    REGISTRY[key] = option
    return option


def _at_least(low: float, value_type: ValueType[T]) -> ValueType[T]:
    """The same type without values under `low`."""

    def convert(value: object) -> T:
        converted: Any = value_type.convert(value)
        if not converted >= low:  # also refuses nan
            raise ValueError(f"must be at least {low}")
        result: T = converted
        return result

    return ValueType(value_type.name, convert)


_COUNT = _at_least(0, INTEGER)
_POSITIVE = _at_least(1, INTEGER)
_TIME_MS = _at_least(0, DURATION_MS)
_POSITIVE_TIME_MS = _at_least(1, DURATION_MS)
_SIZE_BYTES = _at_least(0, value_types.BYTES_COUNT)


def _to_max_parallelism(value: object) -> int:
    converted = INTEGER.convert(value)
    if not 1 <= converted <= 32768:
        raise ValueError("must be between 1 and 32768")
    return converted


def _to_fraction(value: object) -> float:
    converted = FLOAT.convert(value)
    if not 0.0 <= converted <= 1.0:
        raise ValueError("must be between 0 and 1")
    return converted


# The program ---------------------------------------------------------------------------------------------------------

PARALLELISM = _option("parallelism.default", _POSITIVE, 1, "How many subtasks an operator has that names no number.")
PIPELINE_NAME = _unset("pipeline.name", STRING, "The name of the job in lists, logs and Spark's pages.")
MAX_PARALLELISM = _option(
    "pipeline.max-parallelism",
    ValueType("integer", _to_max_parallelism),
    128,
    "Into how many key groups keyed state is cut, which bounds parallelism; fixed for the life of a job's state.",
)
OPERATOR_CHAINING_ENABLED = _option(
    "pipeline.operator-chaining.enabled", BOOLEAN, True, "Whether operators that can run in one task do so."
)
AUTO_WATERMARK_INTERVAL_MS = _option(
    "pipeline.auto-watermark-interval", _TIME_MS, 200, "How often watermark generators are asked for a watermark."
)
AUTO_GENERATE_UIDS = _option(
    "pipeline.auto-generate-uids", BOOLEAN, True, "Whether operators without a uid get one; if not, they are an error."
)
GLOBAL_JOB_PARAMETERS = _option(
    "pipeline.global-job-parameters", MAPPING, {}, "The user's own settings, readable in every function."
)

CONFIGURATION_STRICT = _option(
    "penstock.configuration.strict",
    BOOLEAN,
    False,
    "Whether an unknown key under a prefix of Flink's or Penstock's is an error; otherwise it is a warning.",
)

# Where and how it runs -----------------------------------------------------------------------------------------------

RUNTIME_MODE = _option(
    "execution.runtime-mode",
    choice("STREAMING", "BATCH", "AUTOMATIC", "MICRO_BATCH"),
    "STREAMING",
    "Whether the job streams, runs as a batch, as a batch if all its sources are bounded, or epoch by epoch.",
)
BATCH_SAVEPOINT_PATH = _unset(
    "execution.batch.savepoint-path",
    STRING,
    "Where a job in BATCH mode leaves its state, from which others go on: a directory that does not exist yet, of any "
    "fsspec file system that all workers reach. Unbounded sources are read as far as they go.",
)
MICRO_BATCH_INTERVAL_MS = _unset(
    "execution.micro-batch.interval",
    _TIME_MS,
    "How often an epoch begins in MICRO_BATCH mode; unset for one behind the other until nothing is left to read.",
)
MICRO_BATCH_RECORDS_MAX = _unset(
    "execution.micro-batch.max-records",
    _POSITIVE,
    "How many records a source subtask reads in an epoch at most; unset for all that are there. Streaming data frames "
    "have Spark's own options for that.",
)
EXECUTION_TARGET = _option(
    "execution.target",
    choice("spark", "local"),
    "spark",
    "The driver that runs the job: on Spark, or in this process on one thread.",
)
EXECUTION_ATTACHED = _option("execution.attached", BOOLEAN, True, "Whether `execute` waits for the job to end.")
ON_SIGTERM = _option(
    "penstock.on-sigterm",
    choice("none", "stop-with-savepoint", "cancel"),
    "none",
    "What SIGTERM does to a program that waits in `execute`: what it does anyway, or it stops the job with a savepoint "
    "in execution.checkpointing.savepoint-dir, or cancels it. A second one does what it does anyway.",
)
BUFFER_TIMEOUT_MS = _option(
    "execution.buffer-timeout.interval",
    _at_least(-1, DURATION_MS),
    100,
    "The age at which a network buffer is sent though not full; 0 sends at once.",
)
CACHE_DIR = _unset(
    "penstock.cache.dir",
    STRING,
    "The directory, of any fsspec file system that all workers reach, for cached streams; unset for this machine's.",
)
PYTHON_FILES = _unset(
    "python.files", STRING, "Python files, zips and directories that functions import, with commas between them."
)
PYTHON_ARCHIVES = _unset(
    "python.archives", STRING, "Archives that are unpacked where functions run: path#directory, with commas."
)
PYTHON_EXECUTABLE = _unset(
    "python.executable", STRING, "The Python of the workers of a Spark session that Penstock starts."
)
SPARK_JARS = _unset("spark.jars", STRING, "Jars for a Spark session that Penstock starts, with commas between them.")
SPARK_MASTER = _unset("spark.master", STRING, "The Spark master to connect to, when no Spark session is given.")
SPARK_APP_NAME = _option("spark.app.name", STRING, "penstock", "The name of the Spark application Penstock starts.")

# Checkpoints ---------------------------------------------------------------------------------------------------------

CHECKPOINTING_INTERVAL_MS = _unset(
    "execution.checkpointing.interval", _POSITIVE_TIME_MS, "How often a checkpoint starts; unset takes none."
)
CHECKPOINTING_MODE = _option(
    "execution.checkpointing.mode",
    choice("EXACTLY_ONCE", "AT_LEAST_ONCE"),
    "EXACTLY_ONCE",
    "How often a record may count in state after a failure: once, or at least once.",
)
CHECKPOINTING_TIMEOUT_MS = _option(
    "execution.checkpointing.timeout",
    _POSITIVE_TIME_MS,
    600_000,
    "The age at which an unfinished checkpoint is given up.",
)
CHECKPOINTING_MIN_PAUSE_MS = _option(
    "execution.checkpointing.min-pause",
    _TIME_MS,
    0,
    "The least time between the end of a checkpoint and the next start.",
)
CHECKPOINTING_MAX_CONCURRENT = _option(
    "execution.checkpointing.max-concurrent-checkpoints", _POSITIVE, 1, "How many checkpoints may be under way at once."
)
CHECKPOINTING_TOLERABLE_FAILURES = _option(
    "execution.checkpointing.tolerable-failed-checkpoints",
    _COUNT,
    0,
    "How many checkpoints may fail in a row before the job fails.",
)
CHECKPOINTING_DIR = _unset(
    "execution.checkpointing.dir", STRING, "The directory, of any fsspec file system, for checkpoints."
)
SAVEPOINT_DIR = _unset("execution.checkpointing.savepoint-dir", STRING, "The directory for savepoints that name none.")
CHECKPOINTING_NUM_RETAINED = _option(
    "execution.checkpointing.num-retained", _POSITIVE, 1, "How many completed checkpoints are kept."
)
CHECKPOINT_RETENTION = _option(
    "execution.checkpointing.externalized-checkpoint-retention",
    choice("NO_EXTERNALIZED_CHECKPOINTS", "DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION"),
    "DELETE_ON_CANCELLATION",
    "Whether checkpoints outlive a job: never, unless it is cancelled or finishes, or also when it is cancelled.",
)
CHECKPOINTING_INLINE_BYTES = _option(
    "execution.checkpointing.data-inline-threshold",
    _SIZE_BYTES,
    20 * 1024,
    "State up to this size is stored inside the checkpoint's metadata instead of a file of its own.",
)
UNALIGNED_ENABLED = _option(
    "execution.checkpointing.unaligned.enabled",
    BOOLEAN,
    False,
    "Whether barriers overtake records, which then become part of the checkpoint.",
)
FORCE_UNALIGNED = _option(
    "execution.checkpointing.unaligned.forced",
    BOOLEAN,
    False,
    "Whether unaligned checkpoints are also taken where Flink refuses to; here they are taken everywhere anyway.",
)
ALIGNED_TIMEOUT_MS = _option(
    "execution.checkpointing.aligned-checkpoint-timeout",
    _TIME_MS,
    0,
    "How long an unaligned checkpoint first tries to align; 0 does not try.",
)
ALIGNMENT_HELD_BACK_BYTES_MAX = _unset(
    "execution.checkpointing.max-alignment-bytes",
    _SIZE_BYTES,
    "How much an alignment may hold back, about, before the checkpoint is declined; unset for no bound.",
)
LOCAL_BACKUP_ENABLED = _unset(
    "execution.checkpointing.local-backup.enabled",
    BOOLEAN,
    "Whether a worker keeps copies of its state files on its disk; unset for what execution.state-recovery.from-local "
    "says.",
)
LOCAL_BACKUP_DIR = _unset(
    "execution.checkpointing.local-backup.dirs",
    STRING,
    "The directory on each worker's machine for those copies; unset for the machine's directory of temporary files.",
)
RECOVERY_FROM_LOCAL = _option(
    "execution.state-recovery.from-local",
    BOOLEAN,
    False,
    "Whether a task that restarts in the same worker reads its own copies of state files instead of the checkpoint's.",
)
RECOVERY_PATH = _unset("execution.state-recovery.path", STRING, "The savepoint or checkpoint the job starts from.")
RECOVERY_FROM_LATEST = _option(
    "penstock.recovery.from-latest",
    BOOLEAN,
    False,
    "Whether the job goes on from the newest checkpoint, or the savepoint it was stopped with, that a job of its name "
    "has left below execution.checkpointing.dir. Where there is none it begins as without this; one that has come to "
    "its end has nothing more to do.",
)
RECOVERY_IGNORE_UNCLAIMED_STATE = _option(
    "execution.state-recovery.ignore-unclaimed-state",
    BOOLEAN,
    False,
    "Whether state that no operator of the program claims is dropped instead of being an error.",
)
RECOVERY_MATCH_BY_PLACE = _option(
    "penstock.recovery.match-by-place",
    BOOLEAN,
    False,
    "Whether an operator without uid takes the state that was written at its place in the program, also where the "
    "operators around it have changed, so that it may be another one's.",
)
RECOVERY_PAST_DAMAGED = _option(
    "penstock.recovery.past-damaged-checkpoint",
    choice("refuse", "fall-back"),
    "refuse",
    "What a job with sinks that commit does when its newest checkpoint is damaged: fail, or go back to the one before, "
    "so that what was committed since is committed again. Jobs without such sinks go back.",
)
RECOVERY_CLAIM_MODE = _option(
    "execution.state-recovery.claim-mode",
    choice("NO_CLAIM", "CLAIM"),
    "NO_CLAIM",
    "Whether the job may delete what it starts from: never, or when its own first checkpoint is complete.",
)
STATE_BACKEND = _option(
    "state.backend.type", choice("hashmap", "rocksdb"), "hashmap", "Where keyed state lives: in memory, or in RocksDB."
)

ROCKSDB_LOCAL_DIR = _unset(
    "state.backend.rocksdb.localdir",
    STRING,
    "The directory on each worker's machine for RocksDB's files; unset for the machine's directory of temporary files.",
)
ROCKSDB_BLOCK_CACHE_BYTES = _option(
    "state.backend.rocksdb.block.cache-size",
    _SIZE_BYTES,
    32 << 20,
    "Blocks of RocksDB's files kept in memory, for each operator in each subtask.",
)
ROCKSDB_WRITE_BUFFER_BYTES = _option(
    "state.backend.rocksdb.writebuffer.size",
    _SIZE_BYTES,
    16 << 20,
    "Rows gathered in memory before they go into a file of RocksDB, in each of two buffers.",
)
ROCKSDB_OBJECT_CACHE_BYTES = _option(
    "state.backend.rocksdb.object-cache-size",
    _SIZE_BYTES,
    32 << 20,
    "Entries kept as Python objects in front of RocksDB, about, so that hot keys are not serialised at each access.",
)

# Restarts ------------------------------------------------------------------------------------------------------------

RESTART_STRATEGY = _unset(
    "restart-strategy.type",
    choice(
        "none",
        "fixed-delay",
        "failure-rate",
        "exponential-delay",
        aliases={
            "off": "none",
            "disable": "none",
            "fixeddelay": "fixed-delay",
            "failurerate": "failure-rate",
            "exponentialdelay": "exponential-delay",
        },
    ),
    "How a failed job restarts; unset means exponential-delay with checkpointing and none without.",
)
FIXED_DELAY_ATTEMPTS = _option(
    "restart-strategy.fixed-delay.attempts", _COUNT, 1, "How often the job restarts before it fails for good."
)
FIXED_DELAY_MS = _option("restart-strategy.fixed-delay.delay", _TIME_MS, 1_000, "The wait before each restart.")
FAILURE_RATE_MAX_FAILURES = _option(
    "restart-strategy.failure-rate.max-failures-per-interval",
    _POSITIVE,
    1,
    "How many failures within the interval are restarted; one more fails the job for good.",
)
FAILURE_RATE_INTERVAL_MS = _option(
    "restart-strategy.failure-rate.failure-rate-interval",
    _POSITIVE_TIME_MS,
    60_000,
    "The interval in which failures are counted.",
)
FAILURE_RATE_DELAY_MS = _option("restart-strategy.failure-rate.delay", _TIME_MS, 1_000, "The wait before each restart.")
EXPONENTIAL_INITIAL_BACKOFF_MS = _option(
    "restart-strategy.exponential-delay.initial-backoff", _POSITIVE_TIME_MS, 1_000, "The wait before the first restart."
)
EXPONENTIAL_MAX_BACKOFF_MS = _option(
    "restart-strategy.exponential-delay.max-backoff", _POSITIVE_TIME_MS, 60_000, "The longest wait before a restart."
)
EXPONENTIAL_MULTIPLIER = _option(
    "restart-strategy.exponential-delay.backoff-multiplier",
    _at_least(1.0, FLOAT),
    1.5,
    "By what factor the wait grows from one restart to the next.",
)
EXPONENTIAL_RESET_THRESHOLD_MS = _option(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    _POSITIVE_TIME_MS,
    3_600_000,
    "How long a job must run well for the wait to fall back to the first.",
)
EXPONENTIAL_JITTER_FACTOR = _option(
    "restart-strategy.exponential-delay.jitter-factor",
    ValueType("number", _to_fraction),
    0.1,
    "By what share of itself the wait varies at random.",
)
EXPONENTIAL_ATTEMPTS_MAX = _option(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    _POSITIVE,
    2**31 - 1,
    "How many restarts in a row before the job fails for good; by default no limit that matters.",
)
IDENTICAL_FAILURES_MAX = _option(
    "penstock.restart.identical-failures-max",
    _COUNT,
    10,
    "With how many failures that are alike, and no completed checkpoint between, a job fails for good, whatever its "
    "restart strategy; 0 for no limit. Refused connections, time-outs and the like are not counted.",
)

# The end of tasks ----------------------------------------------------------------------------------------------------

TASK_CANCELLATION_INTERVAL_MS = _option(
    "task.cancellation.interval",
    _POSITIVE_TIME_MS,
    30_000,
    "How often the log says which cancelled tasks have not ended.",
)
TASK_CANCELLATION_TIMEOUT_MS = _option(
    "task.cancellation.timeout",
    _TIME_MS,
    180_000,
    "How long cancelled tasks may take to end; then their worker is ended by force, or, where the job runs in the "
    "client's process, waited for no longer. 0 for no limit.",
)

# Workers and the network between them --------------------------------------------------------------------------------

HEARTBEAT_INTERVAL_MS = _option("heartbeat.interval", _POSITIVE_TIME_MS, 10_000, "How often workers say they live.")
HEARTBEAT_TIMEOUT_MS = _option(
    "heartbeat.timeout", _POSITIVE_TIME_MS, 50_000, "The silence after which a worker is lost."
)
SLOT_REQUEST_TIMEOUT_MS = _option(
    "slot.request.timeout", _POSITIVE_TIME_MS, 300_000, "How long a job waits for the slots it needs."
)
BUFFERS_PER_CHANNEL = _option(
    "taskmanager.network.memory.buffers-per-channel", _POSITIVE, 2, "How many buffers a channel may have under way."
)
NETWORK_BUFFER_RECORDS = _option(
    "penstock.network.buffer-records", _POSITIVE, 4096, "How many records a network buffer holds at most."
)
NETWORK_FRAME_BYTES_MAX = _option(
    "penstock.network.max-frame-bytes",
    _at_least(1024, value_types.BYTES_COUNT),
    64 << 20,
    "The largest message between workers; a larger one is a broken protocol. Larger buffers and records are split.",
)
NETWORK_RECORD_BYTES_MAX = _option(
    "penstock.network.record-bytes-max",
    _at_least(1024, value_types.BYTES_COUNT),
    1 << 30,
    "The largest record that goes from worker to worker, and the largest piece of state or results that goes to the "
    "job master at once. In one process records are handed over as they are, of any size.",
)
SOURCE_BATCH_RECORDS = _option(
    "penstock.source.batch-records", _POSITIVE, 4096, "How many records a source hands over at a time at most."
)
