"""All configuration options that Penstock reads: key, type, default and purpose.

Read one with `configuration.read(PARALLELISM)`. Names end in the unit of the value: `_MS` for milliseconds, `_BYTES`
for bytes. An option without a default reads as None when it is not set. Keys are Flink's where Flink has the option.
"""

from __future__ import annotations

from penstock.base import config_options as value_types
from penstock.base import lineage, server_options  # noqa: F401 - their options are in the registry, too
from penstock.base.config_options import (
    BOOLEAN,
    COUNT,
    DURATION_MS,
    FLOAT,
    MAPPING,
    PORT,
    POSITIVE,
    POSITIVE_TIME_MS,
    REGISTRY,
    SECRET,
    SIZE_BYTES,
    STRING,
    TIME_MS,
    TOKEN,
    Option,
    ValueType,
    at_least,
    choice,
    option,
    to_fraction,
    to_inner_fraction,
    to_max_parallelism,
    to_ports,
    unset,
)

__all__ = ["REGISTRY", "Option"]

# Pipeline ------------------------------------------------------------------------------------------------------------

PARALLELISM = option("parallelism.default", POSITIVE, 1, "The parallelism of operators that do not set their own.")
PIPELINE_NAME = unset("pipeline.name", STRING, "The name of the job in lists, logs and Spark's pages.")
MAX_PARALLELISM = option(
    "pipeline.max-parallelism",
    ValueType("integer", to_max_parallelism),
    128,
    "The number of key groups that keyed state is divided into. Parallelism cannot exceed it, and it is fixed for the "
    "life of a job's state.",
)
OPERATOR_CHAINING_ENABLED = option(
    "pipeline.operator-chaining.enabled", BOOLEAN, True, "Whether to chain operators that can run in one task."
)
AUTO_WATERMARK_INTERVAL_MS = option(
    "pipeline.auto-watermark-interval", TIME_MS, 200, "The interval at which watermark generators emit watermarks."
)
AUTO_GENERATE_UIDS = option(
    "pipeline.auto-generate-uids",
    BOOLEAN,
    True,
    "Whether Penstock generates a uid for an operator without one. If false, a missing uid is an error.",
)
GLOBAL_JOB_PARAMETERS = option(
    "pipeline.global-job-parameters", MAPPING, {}, "The user's own settings, readable in every function."
)

CEP_ALLOW_CHANGED_PATTERN = option(
    "pipeline.cep.allow-changed-pattern",
    BOOLEAN,
    False,
    "Whether a job resumes from the state of a pattern whose stages or window have changed. If true, partial matches "
    "whose stages so far are unchanged are kept and the others are dropped; if false, the job fails and names the "
    "differences.",
)
CEP_PARTIAL_MATCHES_MAX = unset(
    "pipeline.cep.partial-matches.max",
    POSITIVE,
    "The maximum number of partial matches per key, including matches not yet emitted.",
)
CEP_PARTIAL_MATCHES_OVERFLOW = option(
    "pipeline.cep.partial-matches.on-overflow",
    choice("fail", "drop-oldest"),
    "fail",
    "How to treat a key that exceeds this maximum: fail the job, or drop the oldest partial matches, which the metric "
    "`numPartialMatchesDropped` counts.",
)

CONFIGURATION_STRICT = option(
    "penstock.configuration.strict",
    BOOLEAN,
    False,
    "Whether an unknown key under a Flink or Penstock prefix is an error. If false, it is a warning.",
)

# Execution -----------------------------------------------------------------------------------------------------------

RUNTIME_MODE = option(
    "execution.runtime-mode",
    choice("STREAMING", "BATCH", "AUTOMATIC", "MICRO_BATCH"),
    "STREAMING",
    "How the job runs: as a stream, as a batch, as a batch if all its sources are bounded, or in epochs.",
)
BATCH_SAVEPOINT_PATH = unset(
    "execution.batch.savepoint-path",
    STRING,
    "The directory to which a job in BATCH mode writes its final state, so that other jobs can resume from it. It "
    "must not exist yet, on any fsspec file system that all workers can reach. Unbounded sources are read up to their "
    "current end.",
)
MICRO_BATCH_INTERVAL_MS = unset(
    "execution.micro-batch.interval",
    TIME_MS,
    "The interval between the starts of epochs in MICRO_BATCH mode. If unset, epochs run back to back until nothing is "
    "left to read.",
)
MICRO_BATCH_RECORDS_MAX = unset(
    "execution.micro-batch.max-records",
    POSITIVE,
    "The maximum number of records a source subtask reads in an epoch. If unset, it reads all available records. "
    "Streaming data frames use Spark's own options instead.",
)
EXECUTION_TARGET = option(
    "execution.target",
    choice("spark", "local"),
    "spark",
    "Where the job runs: on Spark, or in this process on one thread.",
)
EXECUTION_ATTACHED = option("execution.attached", BOOLEAN, True, "Whether `execute` waits for the job to end.")
ON_SIGTERM = option(
    "penstock.on-sigterm",
    choice("none", "stop-with-savepoint", "cancel"),
    "none",
    "How a program that waits in `execute` reacts to SIGTERM: as it would without Penstock, by stopping the job with a "
    "savepoint in execution.checkpointing.savepoint-dir, or by cancelling it. It reacts to a second SIGTERM as it "
    "would without Penstock.",
)
BUFFER_TIMEOUT_MS = option(
    "execution.buffer-timeout.interval",
    at_least(-1, DURATION_MS),
    100,
    "The maximum time a partly filled network buffer waits before it is sent. 0 sends it at once.",
)
CACHE_DIR = unset(
    "penstock.cache.dir",
    STRING,
    "The directory for cached streams, on any fsspec file system that all workers can reach. If unset, the temporary "
    "directory of this machine.",
)
PYTHON_FILES = unset(
    "python.files", STRING, "Python files, zips and directories that functions import, separated by commas."
)
PYTHON_ARCHIVES = unset(
    "python.archives", STRING, "Archives to unpack where functions run, as path#directory, separated by commas."
)
PYTHON_EXECUTABLE = unset(
    "python.executable", STRING, "The Python executable of the workers of a Spark session that Penstock starts."
)
ARROW_BATCH_SIZE = unset(
    "python.fn-execution.arrow.batch.size",
    POSITIVE,
    "The most rows in a call of a vectorized function (`pandas` or `arrow`). If unset, 1000 for an asynchronous "
    "function, and a whole batch for another.",
)
SPARK_JARS = unset("spark.jars", STRING, "Jars for a Spark session that Penstock starts, separated by commas.")
SPARK_MASTER = unset("spark.master", STRING, "The Spark master to connect to if no Spark session is given.")
SPARK_APP_NAME = option("spark.app.name", STRING, "penstock", "The name of the Spark application that Penstock starts.")

# Checkpoints ---------------------------------------------------------------------------------------------------------

CHECKPOINTING_INTERVAL_MS = unset(
    "execution.checkpointing.interval",
    POSITIVE_TIME_MS,
    "The interval between the starts of checkpoints. If unset, the job takes none.",
)
CHECKPOINTING_MODE = option(
    "execution.checkpointing.mode",
    choice("EXACTLY_ONCE", "AT_LEAST_ONCE"),
    "EXACTLY_ONCE",
    "The guarantee for state after a failure: each record counts exactly once, or at least once.",
)
CHECKPOINTING_TIMEOUT_MS = option(
    "execution.checkpointing.timeout",
    POSITIVE_TIME_MS,
    600_000,
    "The maximum time a checkpoint may take before it is aborted.",
)
CHECKPOINTING_MIN_PAUSE_MS = option(
    "execution.checkpointing.min-pause",
    TIME_MS,
    0,
    "The minimum time between the end of one checkpoint and the start of the next.",
)
CHECKPOINTING_MAX_CONCURRENT = option(
    "execution.checkpointing.max-concurrent-checkpoints",
    POSITIVE,
    1,
    "The maximum number of checkpoints in progress at the same time.",
)
CHECKPOINTING_TOLERABLE_FAILURES = option(
    "execution.checkpointing.tolerable-failed-checkpoints",
    COUNT,
    0,
    "The number of consecutive checkpoint failures the job tolerates.",
)
CHECKPOINTING_DIR = unset(
    "execution.checkpointing.dir", STRING, "The directory for checkpoints, on any fsspec file system."
)
SAVEPOINT_DIR = unset("execution.checkpointing.savepoint-dir", STRING, "The default directory for savepoints.")
CHECKPOINTING_NUM_RETAINED = option(
    "execution.checkpointing.num-retained", POSITIVE, 1, "The number of completed checkpoints to keep."
)
CHECKPOINT_RETENTION = option(
    "execution.checkpointing.externalized-checkpoint-retention",
    choice("NO_EXTERNALIZED_CHECKPOINTS", "DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION"),
    "DELETE_ON_CANCELLATION",
    "Whether checkpoints outlive a job: never, unless it is cancelled or finishes, or also if it is cancelled.",
)
CHECKPOINTING_INLINE_BYTES = option(
    "execution.checkpointing.data-inline-threshold",
    SIZE_BYTES,
    20 * 1024,
    "State up to this size is stored in the checkpoint's metadata instead of a separate file.",
)
SIGNING_KEY = unset(
    "penstock.checkpoints.signing-key",
    SECRET,
    "A secret of at least 16 characters that signs checkpoints and savepoints. A job with a key refuses to start from "
    "one that is unsigned or was changed. If unset, nothing is signed and signatures are ignored.",
)
UNALIGNED_ENABLED = option(
    "execution.checkpointing.unaligned.enabled",
    BOOLEAN,
    False,
    "Whether barriers may overtake records. The checkpoint then includes those records. Barriers do not overtake "
    "records sent to an operator with a broadcast input.",
)
FORCE_UNALIGNED = option(
    "execution.checkpointing.unaligned.forced",
    BOOLEAN,
    False,
    "Whether to take unaligned checkpoints where Flink refuses to. No effect: Penstock never refuses them.",
)
ALIGNED_TIMEOUT_MS = option(
    "execution.checkpointing.aligned-checkpoint-timeout",
    TIME_MS,
    0,
    "How long an unaligned checkpoint tries to align first. 0 means not at all.",
)
ALIGNMENT_HELD_BACK_BYTES_MAX = unset(
    "execution.checkpointing.max-alignment-bytes",
    SIZE_BYTES,
    "Approximately how much data an alignment may hold back before the task declines the checkpoint. If unset, it is "
    "unlimited.",
)
LOCAL_BACKUP_ENABLED = unset(
    "execution.checkpointing.local-backup.enabled",
    BOOLEAN,
    "Whether a worker keeps copies of its state files on its disk. If unset, execution.state-recovery.from-local "
    "decides.",
)
LOCAL_BACKUP_DIR = unset(
    "execution.checkpointing.local-backup.dirs",
    STRING,
    "The directory for those copies on each worker's machine. If unset, the machine's temporary directory.",
)
RECOVERY_FROM_LOCAL = option(
    "execution.state-recovery.from-local",
    BOOLEAN,
    False,
    "Whether a task that restarts in the same worker reads its local copies of state files instead of the "
    "checkpoint's.",
)
RECOVERY_PATH = unset("execution.state-recovery.path", STRING, "The savepoint or checkpoint to start the job from.")
RECOVERY_FROM_LATEST = option(
    "penstock.recovery.from-latest",
    BOOLEAN,
    False,
    "Whether the job resumes from the latest checkpoint, or from the savepoint it was stopped with, that a job of the "
    "same name left under execution.checkpointing.dir. Without one, the job starts as if this option were unset. If "
    "that job has finished, nothing is left to do. If its driver still runs, that driver is deposed: it no longer "
    "commits or deletes anything.",
)
HIGH_AVAILABILITY_TYPE = option(
    "high-availability.type",
    choice("NONE", "FILE", "ZOOKEEPER"),
    "NONE",
    "With FILE, one of several drivers of a job on one host runs it. The others stand by until its process ends; then "
    "one of them resumes the job as with penstock.recovery.from-latest. With ZOOKEEPER, the drivers may be on any "
    "hosts, and ZooKeeper elects the one that runs the job. Drivers find each other by the job's name.",
)
HIGH_AVAILABILITY_DIR = unset(
    "high-availability.storageDir",
    STRING,
    "With FILE, the directory of the lock that elects the leader, on this host. If unset, "
    "execution.checkpointing.dir. A session requires it, with ZOOKEEPER too, and stores the programs it runs there.",
)
HIGH_AVAILABILITY_CLUSTER_ID = option(
    "high-availability.cluster-id",
    STRING,
    "/default",
    "Separates jobs of the same name in ZooKeeper: drivers with different ids do not stand by for each other.",
)
ZOOKEEPER_QUORUM = unset(
    "high-availability.zookeeper.quorum", STRING, "The ZooKeeper servers: host:port,host:port,host:port."
)
ZOOKEEPER_PATH_ROOT = option(
    "high-availability.zookeeper.path.root",
    STRING,
    "/penstock",
    "The path in ZooKeeper under which Penstock keeps its nodes: root, cluster id, job.",
)
ZOOKEEPER_SESSION_TIMEOUT_MS = option(
    "high-availability.zookeeper.client.session-timeout",
    POSITIVE_TIME_MS,
    60_000,
    "How long ZooKeeper may not hear from the job's driver before a standby takes over. The servers limit it, by "
    "default to between 2 and 20 ticks.",
)
ZOOKEEPER_CONNECTION_TIMEOUT_MS = option(
    "high-availability.zookeeper.client.connection-timeout",
    POSITIVE_TIME_MS,
    15_000,
    "How long a driver waits for ZooKeeper when it starts and when it reports the end of its job.",
)
ZOOKEEPER_TOLERATE_SUSPENDED = option(
    "high-availability.zookeeper.client.tolerate-suspended-connections",
    BOOLEAN,
    False,
    "Whether a driver that has lost its connection to ZooKeeper remains the leader until its session expires. If "
    "false, its job is suspended at once.",
)
ZOOKEEPER_ACL = option(
    "high-availability.zookeeper.client.acl",
    choice("open", "creator"),
    "open",
    "Who may read and change Penstock's nodes in ZooKeeper: everyone, or only clients with the same "
    "high-availability.zookeeper.client.authorization.",
)
ZOOKEEPER_AUTHORIZATION = unset(
    "high-availability.zookeeper.client.authorization",
    MAPPING,
    "The credentials that drivers present to ZooKeeper: scheme:credentials, such as digest:'user:password'.",
)
RECOVERY_IGNORE_UNCLAIMED_STATE = option(
    "execution.state-recovery.ignore-unclaimed-state",
    BOOLEAN,
    False,
    "Whether to drop state that no operator of the program claims. If false, such state is an error.",
)
RECOVERY_MATCH_BY_PLACE = option(
    "penstock.recovery.match-by-place",
    BOOLEAN,
    False,
    "Whether an operator without a uid takes the state of its position in the program even if the operators around it "
    "have changed. That state may belong to another operator.",
)
RECOVERY_KEEP_EVENT_TIME = option(
    "penstock.recovery.keep-event-time",
    BOOLEAN,
    True,
    "Whether a job that starts from a savepoint or checkpoint resumes at its event time, so that earlier records are "
    "late. Set it to false after a wrong timestamp has advanced event time too far.",
)
RECOVERY_PAST_DAMAGED = option(
    "penstock.recovery.past-damaged-checkpoint",
    choice("refuse", "fall-back"),
    "refuse",
    "How a job with committing sinks reacts to a damaged latest checkpoint: fail, or fall back to the previous one "
    "and commit again everything committed since. Jobs without such sinks always fall back.",
)
RECOVERY_CLAIM_MODE = option(
    "execution.state-recovery.claim-mode",
    choice("NO_CLAIM", "CLAIM"),
    "NO_CLAIM",
    "Whether the job may delete the snapshot it starts from: never, or once its own first checkpoint is complete.",
)
STATE_BACKEND = option(
    "state.backend.type",
    choice("hashmap", "rocksdb"),
    "hashmap",
    "Where keyed state is kept: in memory, or in RocksDB.",
)

ROCKSDB_LOCAL_DIR = unset(
    "state.backend.rocksdb.localdir",
    STRING,
    "The directory for RocksDB's files on each worker's machine. If unset, the machine's temporary directory.",
)
ROCKSDB_BLOCK_CACHE_BYTES = option(
    "state.backend.rocksdb.block.cache-size",
    SIZE_BYTES,
    32 << 20,
    "The size of RocksDB's block cache, for each operator in each subtask. No effect if the worker has a memory "
    "budget.",
)
ROCKSDB_WRITE_BUFFER_BYTES = option(
    "state.backend.rocksdb.writebuffer.size",
    SIZE_BYTES,
    16 << 20,
    "The size of each of the two buffers that collect rows in memory before RocksDB writes them to a file. It is an "
    "upper limit if the worker has a memory budget.",
)
ROCKSDB_OBJECT_CACHE_BYTES = option(
    "state.backend.rocksdb.object-cache-size",
    SIZE_BYTES,
    32 << 20,
    "The approximate size of the cache of entries kept as Python objects in front of RocksDB, so that hot keys are "
    "not serialised on each access. No effect if the worker has a memory budget.",
)
MANAGED_MEMORY_BYTES = unset(
    "taskmanager.memory.managed.size",
    SIZE_BYTES,
    "The memory budget of a worker (one slot), shared by all its RocksDB stores: blocks, write buffers, and entries "
    "kept as Python objects. If unset, every store has the sizes above.",
)
ROCKSDB_MEMORY_MANAGED = option(
    "state.backend.rocksdb.memory.managed",
    BOOLEAN,
    True,
    "Whether the RocksDB stores of a worker share its managed memory, if set.",
)
ROCKSDB_MEMORY_FIXED_PER_SLOT_BYTES = unset(
    "state.backend.rocksdb.memory.fixed-per-slot",
    SIZE_BYTES,
    "The memory shared by all RocksDB stores of a worker, instead of the managed memory.",
)
ROCKSDB_WRITE_BUFFER_RATIO = option(
    "state.backend.rocksdb.memory.write-buffer-ratio",
    ValueType("number", to_inner_fraction),
    0.5,
    "The fraction of RocksDB's share of the budget that write buffers may take. File blocks get the rest.",
)
ROCKSDB_OBJECT_CACHE_RATIO = option(
    "state.backend.rocksdb.memory.object-cache-ratio",
    ValueType("number", to_inner_fraction),
    0.33,
    "The fraction of the budget for entries kept as Python objects, divided evenly among the stores. RocksDB gets the "
    "rest.",
)

# Restarts ------------------------------------------------------------------------------------------------------------

RESTART_STRATEGY = unset(
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
    "How a failed job restarts. If unset, exponential-delay with checkpointing and none without.",
)
FAILOVER_STRATEGY = option(
    "jobmanager.execution.failover-strategy",
    choice("region", "full"),
    "region",
    "What restarts after a failure: the failed regions of the job, which exchange no records with others, or the "
    "whole job.",
)
SCHEDULER = option(
    "jobmanager.scheduler",
    choice("default", "adaptive", aliases={"Default": "default", "Adaptive": "adaptive"}),
    "default",
    "How a streaming job gets its slots: default waits for all the slots its parallelism needs; adaptive runs with "
    "the available slots, and rescales when their number changes.",
)
SCHEDULER_MODE = unset(
    "scheduler-mode",
    choice("reactive"),
    "If reactive, the adaptive scheduler takes all available slots, regardless of the program's parallelism: each "
    "operator scales up to its maximum parallelism.",
)
ADAPTIVE_MIN_PARALLELISM = option(
    "penstock.adaptive-scheduler.min-parallelism",
    POSITIVE,
    1,
    "The lowest parallelism at which the adaptive scheduler runs an operator. Operators with a lower parallelism keep "
    "it.",
)
SUBMISSION_WAIT_MS = unset(
    "jobmanager.adaptive-scheduler.submission.resource-wait-timeout",
    TIME_MS,
    "How long the adaptive scheduler waits for the slots of the lowest parallelism before the job fails. If unset, 5 "
    "minutes, or without limit in reactive mode.",
)
SUBMISSION_STABILIZATION_MS = unset(
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout",
    TIME_MS,
    "How long a job with enough slots, but fewer than it wants, waits for more before it starts or restarts. If "
    "unset, 10 s, or 0 in reactive mode.",
)
EXECUTING_COOLDOWN_MS = option(
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling",
    TIME_MS,
    30_000,
    "How long a rescaled job runs before new slots can rescale it again.",
)
EXECUTING_STABILIZATION_MS = unset(
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout",
    TIME_MS,
    "How long a running job that gets some of its missing slots waits for the others before it is rescaled. If unset, "
    "60 s, or 0 in reactive mode.",
)
RESCALE_MAX_CHECKPOINT_FAILURES = option(
    "jobmanager.adaptive-scheduler.rescale-trigger.max-checkpoint-failures",
    POSITIVE,
    2,
    "The number of failed checkpoints after which a job is rescaled from an older one.",
)
RESCALE_MAX_DELAY_MS = unset(
    "jobmanager.adaptive-scheduler.rescale-trigger.max-delay",
    TIME_MS,
    "How long a job waits for a new checkpoint before it is rescaled from an older one. If unset, "
    "execution.checkpointing.timeout.",
)
FIXED_DELAY_ATTEMPTS = option(
    "restart-strategy.fixed-delay.attempts", COUNT, 1, "The number of restarts before the job fails permanently."
)
FIXED_DELAY_MS = option("restart-strategy.fixed-delay.delay", TIME_MS, 1_000, "The wait before each restart.")
FAILURE_RATE_MAX_FAILURES = option(
    "restart-strategy.failure-rate.max-failures-per-interval",
    POSITIVE,
    1,
    "The number of failures within the interval that lead to a restart. One more fails the job permanently.",
)
FAILURE_RATE_INTERVAL_MS = option(
    "restart-strategy.failure-rate.failure-rate-interval",
    POSITIVE_TIME_MS,
    60_000,
    "The interval over which failures are counted.",
)
FAILURE_RATE_DELAY_MS = option("restart-strategy.failure-rate.delay", TIME_MS, 1_000, "The wait before each restart.")
EXPONENTIAL_INITIAL_BACKOFF_MS = option(
    "restart-strategy.exponential-delay.initial-backoff", POSITIVE_TIME_MS, 1_000, "The wait before the first restart."
)
EXPONENTIAL_MAX_BACKOFF_MS = option(
    "restart-strategy.exponential-delay.max-backoff", POSITIVE_TIME_MS, 60_000, "The longest wait before a restart."
)
EXPONENTIAL_MULTIPLIER = option(
    "restart-strategy.exponential-delay.backoff-multiplier",
    at_least(1.0, FLOAT),
    1.5,
    "The growth factor of the wait from one restart to the next.",
)
EXPONENTIAL_RESET_THRESHOLD_MS = option(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    POSITIVE_TIME_MS,
    3_600_000,
    "How long a job must run without failure before the wait returns to its initial value.",
)
EXPONENTIAL_JITTER_FACTOR = option(
    "restart-strategy.exponential-delay.jitter-factor",
    ValueType("number", to_fraction),
    0.1,
    "The random variation of the wait, as a fraction.",
)
EXPONENTIAL_ATTEMPTS_MAX = option(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    POSITIVE,
    2**31 - 1,
    "The number of consecutive restarts before the job fails permanently. The default is practically unlimited.",
)
FAILURE_ENRICHERS = unset(
    "jobmanager.failure-enrichers",
    STRING,
    "Classes that label failures, as module:Class, separated by commas; the client's process imports them. "
    "penstock.runtime.failure:TypeFailureEnricher labels a failure as the USER's or the SYSTEM's.",
)
IDENTICAL_FAILURES_MAX = option(
    "penstock.restart.identical-failures-max",
    COUNT,
    10,
    "The number of identical failures, with no completed checkpoint in between, after which a job fails permanently "
    "whatever its restart strategy. 0 means no limit. Refused connections, time-outs and the like are not counted.",
)

# Task termination ----------------------------------------------------------------------------------------------------

TIMERS_AFTER_END_MAX = option(
    "penstock.timers.after-end-of-input.max",
    COUNT,
    100_000,
    "The maximum number of timers that a key may set after the end of its input, when all timers are due. Beyond it "
    "the job fails and names the operator, because it would never end. With 0, these timers are dropped, which the "
    "metric `numTimersDropped` counts.",
)
TASK_CANCELLATION_INTERVAL_MS = option(
    "task.cancellation.interval",
    POSITIVE_TIME_MS,
    30_000,
    "The interval at which the log lists cancelled tasks that have not ended.",
)
TASK_CANCELLATION_TIMEOUT_MS = option(
    "task.cancellation.timeout",
    TIME_MS,
    180_000,
    "How long cancelled tasks may take to end. After that their worker is killed or, if the job runs in the client's "
    "process, the client stops waiting. 0 means no limit.",
)

SLOW_WORKERS_THRESHOLD_MS = option(
    "penstock.slow-workers.threshold",
    POSITIVE_TIME_MS,
    30_000,
    "How long a worker's loop may be blocked, as heartbeats report, or a checkpoint may wait for the last few tasks "
    "to acknowledge it, before the log and the job's view name the worker.",
)
SLOW_WORKERS_REPLACE_AFTER_MS = unset(
    "penstock.slow-workers.replace-after",
    POSITIVE_TIME_MS,
    "How long a worker's loop may be blocked while its tasks run. After that the job treats the worker as lost, and "
    "restarts from the last checkpoint. If unset, workers are not replaced for this reason.",
)

# REST ----------------------------------------------------------------------------------------------------------------

REST_PORT = unset(
    "rest.port",
    PORT,
    "The port of the REST API; 0 picks a free port. If neither this nor rest.bind-port is set, no server is started.",
)
REST_BIND_PORT = unset(
    "rest.bind-port",
    ValueType("ports", to_ports),
    "The ports to try, in order, such as 8081-8090 or 8081,9081. If unset, rest.port.",
)
REST_ADDRESS = unset(
    "rest.address", STRING, "The host name under which others reach the server, which answers requests for it."
)
REST_BIND_ADDRESS = option(
    "rest.bind-address",
    STRING,
    "127.0.0.1",
    "The address that the server binds to. Beyond this host it needs security.ssl.rest.enabled, or "
    "penstock.rest.insecure.",
)
REST_INSECURE = option(
    "penstock.rest.insecure",
    BOOLEAN,
    False,
    "Whether the server may listen beyond this host without TLS. Anyone who sees the traffic can then read the tokens.",
)
REST_TOKEN = unset(
    "penstock.rest.token",
    TOKEN,
    "The operator's token. Requests that change something or reveal settings, logs or stacks need it as "
    "Authorization: Bearer. If unset, one is generated if the server listens beyond this host or a reader's token is "
    "set; otherwise none is needed.",
)
REST_READER_TOKEN = unset(
    "penstock.rest.reader-token",
    TOKEN,
    "The reader's token, which must differ from the operator's. If set, every request needs one of the two; the "
    "reader's does not permit changes.",
)
REST_TOKEN_DIRECTORY = unset(
    "penstock.rest.token-dir",
    STRING,
    "The directory of the file with a generated token, readable only by its user. If unset, ~/.penstock.",
)
REST_ALLOWED_HOSTS = unset(
    "penstock.rest.allowed-hosts",
    STRING,
    "Further host names under which browsers may call the server, such as that of a proxy, separated by commas.",
)
REST_ALLOW_ORIGIN = unset(
    "web.access-control-allow-origin",
    STRING,
    "The origin whose pages may read the answers, such as https://dashboards.example. If unset, only the server's.",
)
REST_SSL_ENABLED = option("security.ssl.rest.enabled", BOOLEAN, False, "Whether the server uses TLS.")
REST_SSL_CERTIFICATE = unset("security.ssl.rest.certificate", STRING, "The PEM file of the server's certificate chain.")
REST_SSL_KEY = unset("security.ssl.rest.key", STRING, "The PEM file of the certificate's private key.")
REST_SSL_KEY_PASSWORD = unset("security.ssl.rest.key-password", SECRET, "The password of the private key.")
SHUTDOWN_ON_APPLICATION_FINISH = option(
    "execution.shutdown-on-application-finish",
    BOOLEAN,
    True,
    "Whether the REST server ends with its program. If false, it keeps running so that the jobs can still be "
    "inspected, until Ctrl-C, SIGTERM or DELETE /cluster. The first job that asks for REST decides.",
)
REST_PROFILING_ENABLED = option(
    "rest.profiling.enabled", BOOLEAN, False, "Not supported: an error if true. Use flame graphs instead."
)
REST_CONTENT_BYTES_MAX = option(
    "rest.server.max-content-length",
    SIZE_BYTES,
    100 << 20,
    "The maximum size of an uploaded program. The bodies of other requests are limited to 1 MiB.",
)

# Sessions ------------------------------------------------------------------------------------------------------------

UPLOAD_DIRECTORY = unset(
    "web.upload.dir",
    STRING,
    "The directory in which a session stores uploaded programs. If unset, a directory that is deleted with the "
    "session.",
)
JOB_STORE_CAPACITY = option(
    "jobstore.max-capacity", COUNT, 50, "The maximum number of ended jobs that a session shows; the oldest are removed."
)
JOB_STORE_EXPIRATION_MS = option(
    "jobstore.expiration-time", POSITIVE_TIME_MS, 3_600_000, "How long a session shows an ended job."
)

# Workers and network -------------------------------------------------------------------------------------------------

HEARTBEAT_INTERVAL_MS = option(
    "heartbeat.interval", POSITIVE_TIME_MS, 10_000, "The interval between heartbeats of a worker."
)
HEARTBEAT_TIMEOUT_MS = option(
    "heartbeat.timeout", POSITIVE_TIME_MS, 50_000, "How long a worker may be silent before it counts as lost."
)
SLOT_REQUEST_TIMEOUT_MS = option(
    "slot.request.timeout", POSITIVE_TIME_MS, 300_000, "How long a job waits for the slots it needs."
)
REDUNDANT_WORKERS = option(
    "slotmanager.redundant-taskmanager-num",
    COUNT,
    0,
    "The number of spare workers of a streaming job on Spark. They are idle, each in a slot, and replace lost "
    "workers, so that a restart need not wait for new ones to start.",
)
BUFFERS_PER_CHANNEL = option(
    "taskmanager.network.memory.buffers-per-channel",
    POSITIVE,
    2,
    "The maximum number of buffers a channel may have in flight.",
)
NETWORK_BUFFER_RECORDS = option(
    "penstock.network.buffer-records", POSITIVE, 4096, "The maximum number of records in a network buffer."
)
NETWORK_FRAME_BYTES_MAX = option(
    "penstock.network.max-frame-bytes",
    at_least(1024, value_types.BYTES_COUNT),
    64 << 20,
    "The largest message between workers. Larger buffers and records are split; a larger message is a protocol error.",
)
NETWORK_RECORD_BYTES_MAX = option(
    "penstock.network.record-bytes-max",
    at_least(1024, value_types.BYTES_COUNT),
    1 << 30,
    "The largest record that one worker sends to another, and the largest piece of state or results sent to the job "
    "master at once. Within a process, records may have any size.",
)
SOURCE_BATCH_RECORDS = option(
    "penstock.source.batch-records", POSITIVE, 4096, "The maximum number of records a source emits at a time."
)

# Logs and events -----------------------------------------------------------------------------------------------------

LOGS_DIR = unset(
    "penstock.logs.dir",
    STRING,
    "The directory for the logs of each of the job's processes, on its machine. In `<dir>/<job id>` are the files of "
    "the driver and the workers, and the output of functions. If unset, workers keep their logs until they end, and "
    "the driver its last lines in memory.",
)
LOGS_LEVEL = option(
    "penstock.logs.level", choice("DEBUG", "INFO", "WARNING", "ERROR"), "INFO", "The lowest log level to keep."
)
LOGS_FORMAT = option(
    "penstock.logs.format", choice("text", "json"), "text", "The format of log lines: text, or a JSON object each."
)
LOGS_FILE_BYTES_MAX = option(
    "penstock.logs.max-file-size", SIZE_BYTES, 10 << 20, "The size at which a process starts a new log file."
)
LOGS_FILES_MAX = option("penstock.logs.max-files", POSITIVE, 5, "The number of log files that a process keeps.")
LOGS_OUTPUT_BYTES_MAX = option(
    "penstock.logs.max-output-size",
    SIZE_BYTES,
    10 << 20,
    "How much of functions' output a worker keeps; the oldest is dropped.",
)
EVENT_LISTENERS = unset(
    "penstock.event-listeners",
    STRING,
    "Classes that are notified of the job's events, as `module:Class`, separated by commas. Each is an "
    "`EventListener`, created without arguments when the job starts, and called in a thread of its own.",
)
EVENTS_FILE = unset(
    "penstock.events.file",
    STRING,
    "A file on this machine to which each event of the job is appended as a line of JSON.",
)
