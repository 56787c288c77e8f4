"""The options of the SQL gateway, of materialized tables, and of the history of ended jobs, under Flink's keys.

Who may access these servers, and certificates for TLS, are options of the REST API.
"""

from penstock.base import config_options as values

# SQL gateway ---------------------------------------------------------------------------------------------------------

GATEWAY_PORT = values.option(
    "sql-gateway.endpoint.rest.port", values.PORT, 8083, "The port of the SQL gateway; 0 picks a free port."
)
GATEWAY_BIND_PORT = values.unset(
    "sql-gateway.endpoint.rest.bind-port",
    values.ValueType("ports", values.to_ports),
    "The ports to try, in order, such as 8083-8090. If unset, sql-gateway.endpoint.rest.port.",
)
GATEWAY_ADDRESS = values.unset(
    "sql-gateway.endpoint.rest.address", values.STRING, "The host name under which clients reach the SQL gateway."
)
GATEWAY_BIND_ADDRESS = values.option(
    "sql-gateway.endpoint.rest.bind-address",
    values.STRING,
    "127.0.0.1",
    "The address that the SQL gateway binds to. Beyond this host it needs security.ssl.rest.enabled, or "
    "penstock.rest.insecure, and clients need the token of the REST API.",
)
GATEWAY_IDLE_TIMEOUT_MS = values.option(
    "sql-gateway.session.idle-timeout",
    values.TIME_MS,
    600_000,
    "How long a session of the SQL gateway may be without a call before it ends; 0 for ever.",
)
GATEWAY_CHECK_INTERVAL_MS = values.option(
    "sql-gateway.session.check-interval",
    values.POSITIVE_TIME_MS,
    60_000,
    "How often the SQL gateway looks for idle sessions.",
)
GATEWAY_SESSIONS_MAX = values.option(
    "sql-gateway.session.max-num", values.POSITIVE, 1_000_000, "The maximum number of sessions of the SQL gateway."
)
GATEWAY_TRUE_INSTANTS = values.option(
    "penstock.sql-gateway.true-instants",
    values.BOOLEAN,
    False,
    "Whether the SQL gateway sends the true instant of a TIMESTAMP_LTZ in JSON. If false, it sends the clock of the "
    "session's time zone followed by Z, as Flink does, which Flink's clients expect.",
)

# Materialized tables -------------------------------------------------------------------------------------------------

FRESHNESS_THRESHOLD_MS = values.option(
    "materialized-table.refresh-mode.freshness-threshold",
    values.POSITIVE_TIME_MS,
    1_800_000,
    "From this FRESHNESS on a materialized table without REFRESH_MODE is refreshed as a whole by the scheduler (FULL); "
    "below it a job keeps it up to date (CONTINUOUS).",
)
MICRO_BATCH_THRESHOLD_MS = values.option(
    "penstock.materialized-table.micro-batch-threshold",
    values.POSITIVE_TIME_MS,
    60_000,
    "From this FRESHNESS on the job of a CONTINUOUS materialized table runs in MICRO_BATCH, an epoch per FRESHNESS; "
    "below it the job is a stream with a checkpoint per FRESHNESS.",
)
DEFAULT_FRESHNESS_CONTINUOUS_MS = values.option(
    "materialized-table.default-freshness.continuous",
    values.POSITIVE_TIME_MS,
    180_000,
    "The FRESHNESS of a materialized table that declares none, unless its REFRESH_MODE is FULL.",
)
DEFAULT_FRESHNESS_FULL_MS = values.option(
    "materialized-table.default-freshness.full",
    values.POSITIVE_TIME_MS,
    3_600_000,
    "The FRESHNESS of a materialized table with REFRESH_MODE = FULL that declares none.",
)

# History -------------------------------------------------------------------------------------------------------------


def _to_retained(value: object) -> int:
    number = values.INTEGER.convert(value)
    if number != -1 and number < 1:
        raise ValueError("write a number from 1 on, or -1 for no limit")
    return number


_RETAINED = values.ValueType("integer", _to_retained)

ARCHIVE_DIR = values.unset(
    "jobmanager.archive.fs.dir",
    values.STRING,
    "The directory into which a job writes an archive when it has ended, for penstock history. If unset, it writes "
    "none.",
)
HISTORY_DIRS = values.unset(
    "historyserver.archive.fs.dir",
    values.STRING,
    "The directories with archives that the history server shows, separated by commas. If unset, "
    "jobmanager.archive.fs.dir.",
)
HISTORY_REFRESH_MS = values.option(
    "historyserver.archive.fs.refresh-interval",
    values.POSITIVE_TIME_MS,
    10_000,
    "How often the history server looks for archives.",
)
HISTORY_CLEAN_JOBS = values.option(
    "historyserver.archive.clean-expired-jobs",
    values.BOOLEAN,
    False,
    "Whether the history server forgets a job whose archive was deleted. If false, it shows the job until it ends.",
)
HISTORY_CLEAN_APPLICATIONS = values.option(
    "historyserver.archive.clean-expired-applications",
    values.BOOLEAN,
    False,
    "The same of the archives of Flink's applications.",
)
HISTORY_RETAINED_JOBS = values.option(
    "historyserver.archive.retained-jobs",
    _RETAINED,
    -1,
    "How many archives of jobs a directory keeps; the history server deletes the oldest of more. -1 keeps all.",
)
HISTORY_RETAINED_APPLICATIONS = values.option(
    "historyserver.archive.retained-applications",
    _RETAINED,
    -1,
    "How many archives of Flink's applications a directory keeps, each with those of its jobs. -1 keeps all.",
)
HISTORY_RETAINED_TTL_MS = values.unset(
    "historyserver.archive.retained-ttl",
    values.POSITIVE_TIME_MS,
    "The age from which the history server deletes an archive. If unset, archives do not expire.",
)
HISTORY_WEB_PORT = values.option(
    "historyserver.web.port", values.PORT, 8082, "The port of the history server; 0 picks a free port."
)
HISTORY_WEB_ADDRESS = values.option(
    "historyserver.web.address",
    values.STRING,
    "127.0.0.1",
    "The address that the history server binds to. Beyond this host it needs TLS, or penstock.rest.insecure, and "
    "clients need the token of the REST API.",
)
HISTORY_WEB_REFRESH_MS = values.option(
    "historyserver.web.refresh-interval",
    values.POSITIVE_TIME_MS,
    10_000,
    "How often the web page asks the history server.",
)
HISTORY_WEB_SSL_ENABLED = values.option(
    "historyserver.web.ssl.enabled",
    values.BOOLEAN,
    False,
    "Whether the history server uses TLS, if security.ssl.rest.enabled is set too.",
)
HISTORY_WEB_TMPDIR = values.unset(
    "historyserver.web.tmpdir",
    values.STRING,
    "The directory in which the history server keeps copies of archives while it runs. If unset, one for temporary "
    "files.",
)
