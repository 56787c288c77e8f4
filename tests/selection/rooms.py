"""The table from source rooms to test rooms; the longest row that a path begins with counts.

A row is for what imports do not show: the folder that mirrors a room, pages, data, programs that a test starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: in place of test rooms: what everything is built on, or may depend on
EVERYTHING: Final = ("tests/",)
NOTHING: Final[tuple[str, ...]] = ()

#: rules of the whole repository, which look at every file: they run after any change
RULES: Final = ("tests/test_", "tests/parity/")

#: rooms in which a slow test has in its id the page or example that it is about, and is selected by nothing else
BY_ID: Final = ("tests/examples/",)

_SQL: Final = "src/penstock/sql/"

ROOMS: Final[dict[str, tuple[str, ...]]] = {
    # --- what everything is built on ---
    **{
        f"src/penstock/{name}": EVERYTHING
        for name in ("__init__.py", "base/", "codecs/", "moved_modules", "plan/", "py.typed", "runtime/", "state/")
    },
    "src/penstock/storage/": EVERYTHING,
    "src/penstock/wire/": EVERYTHING,
    "pyproject.toml": EVERYTHING,
    "requirements": EVERYTHING,
    "Makefile": EVERYTHING,
    "scripts/": EVERYTHING,
    "tests/conftest.py": EVERYTHING,
    "tests/selection/": EVERYTHING,
    "tests/servers/kafka.py": EVERYTHING,
    "tests/servers/object_stores.py": EVERYTHING,
    "tests/servers/s3.py": EVERYTHING,
    "tests/simulation/fresh_seeds.py": EVERYTHING,
    # --- the package ---
    "src/penstock/cdc/": ("tests/cdc/",),
    "src/penstock/cep/": ("tests/cep/", "tests/simulation/cep/"),
    "src/penstock/cli/": ("tests/cli/test_",),
    "src/penstock/cli/client/": ("tests/cli/commands/",),
    "src/penstock/cli/commands/": ("tests/cli/commands/",),
    "src/penstock/cli/commands/cdc.py": ("tests/cdc/",),
    "src/penstock/cli/demo/": ("tests/cli/demo/",),
    "src/penstock/cli/gateway/": ("tests/server/gateway/",),
    "src/penstock/cli/program/": ("tests/cli/commands/", "tests/drivers/spark/test_scripts_on_spark.py"),
    "src/penstock/cli/session/": ("tests/cli/session/",),
    "src/penstock/cli/sql_shell/": ("tests/cli/sql_shell/",),
    "src/penstock/cli/trial/": ("tests/cli/trial/",),
    "src/penstock/common/": ("tests/common/",),
    "src/penstock/connectors/": ("tests/connectors/test_",),
    "src/penstock/connectors/aws/": ("tests/connectors/aws/",),
    "src/penstock/connectors/cdc/": ("tests/cdc/", "tests/connectors/mysql/", "tests/connectors/postgres/"),
    "src/penstock/connectors/delta/": ("tests/connectors/delta/",),
    "src/penstock/connectors/iceberg/": ("tests/connectors/iceberg/",),
    "src/penstock/connectors/iceberg/hadoop.py": ("tests/table/catalog/",),
    "src/penstock/connectors/kafka/": ("tests/connectors/kafka/", "tests/simulation/test_kafka_sinks.py"),
    "src/penstock/connectors/http.py": ("tests/connectors/http/",),
    "src/penstock/connectors/http_client.py": (
        "tests/connectors/http/",
        "tests/connectors/opensearch/",
        "tests/table/models/",
    ),
    "src/penstock/connectors/http_server.py": ("tests/connectors/http/", "tests/server/rest/"),
    "src/penstock/connectors/webhook.py": ("tests/connectors/http/",),
    "src/penstock/connectors/prometheus.py": ("tests/connectors/prometheus/",),
    "src/penstock/connectors/mysql/": ("tests/connectors/mysql/",),
    "src/penstock/connectors/conditions.py": (
        "tests/connectors/opensearch/",
        "tests/connectors/clickhouse/",
        "tests/connectors/postgres/",
        "tests/connectors/mysql/",
    ),
    "src/penstock/connectors/opensearch.py": ("tests/connectors/opensearch/",),
    "src/penstock/connectors/opensearch_source.py": ("tests/connectors/opensearch/",),
    "src/penstock/connectors/postgres/": ("tests/connectors/postgres/",),
    "src/penstock/connectors/mqtt.py": ("tests/connectors/mqtt/",),
    "src/penstock/connectors/nats.py": ("tests/connectors/nats/",),
    "src/penstock/connectors/rabbitmq/": ("tests/connectors/rabbitmq/",),
    "src/penstock/connectors/subscriptions.py": (
        "tests/connectors/rabbitmq/",
        "tests/connectors/mqtt/",
        "tests/connectors/nats/",
    ),
    "src/penstock/connectors/redis/": ("tests/connectors/redis/",),
    "src/penstock/connectors/clickhouse": ("tests/connectors/clickhouse/",),
    "src/penstock/connectors/mongodb/": ("tests/connectors/mongodb/",),
    "src/penstock/connectors/file/": ("tests/connectors/test_file", "tests/simulation/test_file_sinks.py"),
    "src/penstock/datastream/": ("tests/datastream/",),
    "src/penstock/drivers/": ("tests/drivers/test_", "tests/drivers/election/", "tests/drivers/settings/"),
    "src/penstock/drivers/client/": ("tests/drivers/test_",),
    "src/penstock/drivers/local/": ("tests/drivers/test_",),
    "src/penstock/drivers/simulation/": ("tests/simulation/test_",),
    "src/penstock/drivers/spark/": ("tests/drivers/spark/",),
    "src/penstock/drivers/stepwise/": (
        "tests/simulation/test_stepwise.py",
        "tests/spec/test_batch_on_spark.py",
        "tests/spec/test_micro_batch_on_spark.py",
        "tests/spec/test_mixed_jobs.py",
    ),
    "src/penstock/formats/": ("tests/formats/", "tests/connectors/test_file_source_formats.py"),
    "src/penstock/gelly/": ("tests/gelly/",),
    "src/penstock/metrics/": ("tests/server/metrics/",),
    "src/penstock/server/": ("tests/server/test_",),
    "src/penstock/server/lineage.py": ("tests/server/test_lineage.py",),
    "src/penstock/sql/logical/lineage.py": ("tests/server/test_lineage.py",),
    "src/penstock/server/attachment.py": ("tests/server/session/", "tests/cli/session/"),
    "src/penstock/server/gateway/": ("tests/server/gateway/",),
    "src/penstock/server/metrics/": ("tests/server/metrics/",),
    "src/penstock/server/page/": ("tests/server/page/",),
    "src/penstock/server/reporters/": ("tests/server/reporters/",),
    "src/penstock/server/rest/": ("tests/server/rest/",),
    "src/penstock/server/session/": ("tests/server/session/", "tests/cli/session/"),
    _SQL: ("tests/table/sql/",),
    f"{_SQL}analyzer/": ("tests/table/analyser/",),
    f"{_SQL}catalogs/": ("tests/table/catalog/",),
    f"{_SQL}connectors/": ("tests/table/connectors/",),
    f"{_SQL}connectors/http.py": ("tests/connectors/http/",),
    f"{_SQL}connectors/http_sink.py": ("tests/connectors/http/",),
    f"{_SQL}connectors/prometheus.py": ("tests/connectors/prometheus/",),
    **{f"{_SQL}connectors/{name}.py": (f"tests/connectors/{name}/",) for name in ("mqtt", "nats", "rabbitmq")},
    f"{_SQL}connectors/queue_tables.py": (
        "tests/connectors/rabbitmq/",
        "tests/connectors/mqtt/",
        "tests/connectors/nats/",
    ),
    f"{_SQL}connectors/mysql_cdc.py": ("tests/connectors/mysql/",),
    **{f"{_SQL}connectors/{name}.py": ("tests/connectors/redis/",) for name in ("redis", "redis_streams")},
    f"{_SQL}connectors/aws.py": ("tests/connectors/aws/",),
    **{f"{_SQL}connectors/{name}.py": ("tests/connectors/aws/",) for name in ("dynamodb", "kinesis", "sqs")},
    f"{_SQL}connectors/clickhouse": ("tests/connectors/clickhouse/",),
    f"{_SQL}connectors/mongodb": ("tests/connectors/mongodb/",),
    f"{_SQL}connectors/delta_catalog.py": ("tests/table/catalog/",),
    f"{_SQL}connectors/iceberg_catalog.py": ("tests/table/catalog/",),
    f"{_SQL}connectors/iceberg_schema.py": ("tests/table/catalog/",),
    f"{_SQL}connectors/jdbc_catalog.py": ("tests/table/catalog/",),
    **{
        f"{_SQL}connectors/{name}.py": ("tests/table/models/",)
        for name in ("pgvector", "qdrant", "sqlite_vec", "vector_stores")
    },
    f"{_SQL}connectors/conditions.py": ("tests/connectors/opensearch/", "tests/connectors/clickhouse/"),
    f"{_SQL}connectors/opensearch_reading.py": ("tests/connectors/opensearch/",),
    f"{_SQL}connectors/opensearch.py": (
        "tests/connectors/opensearch/",
        "tests/table/connectors/test_connectors_page.py",
    ),
    f"{_SQL}expressions/": ("tests/table/built_in/",),
    f"{_SQL}logical/": ("tests/table/sql/", "tests/table/compiled/"),
    f"{_SQL}statements/plans.py": ("tests/table/compiled/",),
    f"{_SQL}formats/": ("tests/table/connectors/",),
    f"{_SQL}functions/": ("tests/table/built_in/", "tests/table/test_functions_page.py"),
    f"{_SQL}models/": ("tests/table/models/",),
    f"{_SQL}optimizer/": ("tests/table/streaming/", "tests/simulation/sql/"),
    f"{_SQL}spark/": ("tests/table/batch/",),
    f"{_SQL}materialized_tables/": ("tests/table/materialized/",),
    f"{_SQL}statements/materialized_tables.py": ("tests/table/materialized/",),
    f"{_SQL}stream/": ("tests/table/streaming/", "tests/simulation/sql/"),
    f"{_SQL}stream/models/": ("tests/table/models/",),
    f"{_SQL}tables/": ("tests/table/connectors/",),
    f"{_SQL}user_functions/": ("tests/table/udf/",),
    "src/penstock/state_processor/": ("tests/state_processor/",),
    "src/penstock/table/": ("tests/table/api/", "tests/table/seams/"),
    "src/penstock/testing/": ("tests/testing/",),
    # --- pages, programs, tools; RULES run for all of them ---
    "docs/": ("tests/examples/", "tests/clusters/test_submit_commands.py"),
    "docs/images/": NOTHING,
    "docs/architecture.md": ("tests/runtime/task/test_phases.py",),
    "docs/flink-features.md": ("tests/docs/test_features.py",),
    "docs/flink-features.toml": ("tests/docs/test_features.py",),
    "docs/formats.md": ("tests/examples/", "tests/table/connectors/test_connectors_page.py"),
    "docs/http.md": ("tests/connectors/http/test_page.py",),
    "docs/kafka-sink.md": ("tests/connectors/kafka/test_sink_page.py",),
    "docs/kafka-to-postgresql.md": ("tests/cli/trial/test_recipe_page.py",),
    "docs/spark-sinks.md": ("tests/examples/", "tests/drivers/spark/test_formats_of_spark.py"),
    **{f"docs/{name}.md": ("tests/connectors/aws/test_pages.py",) for name in ("dynamodb", "kinesis", "sqs")},
    "docs/metrics.md": ("tests/server/test_metrics_of_a_job.py",),
    "docs/opensearch.md": ("tests/connectors/opensearch/test_server.py",),
    "docs/mysql.md": ("tests/connectors/mysql/test_page.py",),
    "docs/postgresql.md": ("tests/connectors/postgres/test_page.py",),
    "docs/prometheus-sink.md": ("tests/connectors/prometheus/",),
    "docs/cdc-pipelines.md": ("tests/cdc/test_page.py",),
    **{f"docs/{name}.md": (f"tests/connectors/{name}/",) for name in ("mqtt", "nats", "rabbitmq")},
    "docs/redis.md": ("tests/connectors/redis/test_page.py",),
    "docs/clickhouse.md": ("tests/connectors/clickhouse/test_tables.py",),
    "docs/mongodb.md": ("tests/connectors/mongodb/test_tables.py",),
    "docs/running.md": ("tests/examples/", "tests/clusters/"),
    "docs/sql-functions.md": ("tests/table/test_functions_page.py",),
    "docs/sql-shell.md": ("tests/cli/sql_shell/test_page.py",),
    "docs/table-connectors.md": ("tests/examples/", "tests/table/connectors/test_connectors_page.py"),
    "docs/ten-minutes.md": ("tests/tutorial/",),
    "README.md": ("tests/examples/",),
    "examples/": ("tests/examples/", "tests/clusters/test_submit_commands.py"),
    "examples/gelly/": ("tests/gelly/test_examples.py",),
    "integrations/": ("tests/server/gateway/test_dbt.py", "tests/docs/test_features.py"),
    "benchmarks/": ("tests/test_benchmarks.py", "tests/test_nexmark_beside_flink.py"),
    "web/": ("tests/server/page/", "tests/server/rest/test_security.py"),
    "scripts/connectors.py": ("tests/table/connectors/test_connectors_page.py",),
    "scripts/features.py": ("tests/docs/test_features.py",),
    "scripts/functions.py": ("tests/table/test_functions_page.py",),
    "scripts/hatch_page.py": ("tests/server/page/", "tests/examples/test_wheel.py"),
    "scripts/page": ("tests/server/page/",),
    "mkdocs.yml": ("tests/test_docs_site.py",),
    "requirements-docs.lock": ("tests/test_docs_site.py",),
    "scripts/docs": ("tests/test_docs_site.py",),
    **{f"scripts/{name}": NOTHING for name in ("image_check.py", "install-check", "lock", "release", "wheels")},
    "scripts/walks.py": NOTHING,
    "tests/simulation/pinned_seeds.txt": ("tests/simulation/test_histories.py",),
    # --- what only readers and other tools see ---
    ".ci/": NOTHING,
    ".dockerignore": NOTHING,
    ".editorconfig": NOTHING,
    ".gitignore": NOTHING,
    "CHANGELOG.md": NOTHING,
    "Dockerfile": NOTHING,
    "CONTRIBUTING.md": NOTHING,
    "LICENSE": NOTHING,
    "findings/": NOTHING,
}


def find_rooms(path: str) -> tuple[str, ...] | None:
    """The test rooms of a changed path; None if no row knows it."""
    rows = [row for row in ROOMS if path.startswith(row)]
    return ROOMS[max(rows, key=len)] if rows else None


def is_test(path: str) -> bool:
    """Whether a path is a file of tests."""
    return path.startswith("tests/") and path.rpartition("/")[2].startswith("test_") and path.endswith(".py")


def is_shared_helper(path: str) -> bool:
    """Whether a path is a helper of all tests, beside their rooms."""
    return path.startswith("tests/") and path.count("/") == 1 and not is_test(path)


def find_folders(path: str) -> Iterator[str]:
    """The folder of a path and the folders above it, below the root; each ends with a slash."""
    parts = path.split("/")[:-1]
    for end in range(len(parts), 0, -1):
        yield "/".join(parts[:end]) + "/"
