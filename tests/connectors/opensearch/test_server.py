"""OpenSearch itself: what it keeps of every type, versions, and its own reasons."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest
from tests.connectors.opensearch.test_tables import ddl
from tests.examples.pages import PAGES, run_page
from tests.servers.opensearch import Opensearch

from penstock.base.errors import JobExecutionError
from penstock.table import EnvironmentSettings, TableEnvironment

pytestmark = pytest.mark.slow

#: the type, the expression of a value, and its text in the document
VALUES = (
    ("BOOLEAN", "TRUE", "true"),
    ("TINYINT", "CAST(-128 AS TINYINT)", "-128"),
    ("SMALLINT", "CAST(32767 AS SMALLINT)", "32767"),
    ("INT", "-2147483648", "-2147483648"),
    ("BIGINT", "CAST(9223372036854775807 AS BIGINT)", "9223372036854775807"),
    ("BIGINT", "CAST('-9223372036854775808' AS BIGINT)", "-9223372036854775808"),
    ("DECIMAL(38, 18)", "CAST('-99999999999999999999.999999999999999999' AS DECIMAL(38, 18))",
     "-99999999999999999999.999999999999999999"),
    ("DECIMAL(38, 0)", "CAST('99999999999999999999999999999999999999' AS DECIMAL(38, 0))",
     "99999999999999999999999999999999999999"),
    ("FLOAT", "CAST('3.4028235E38' AS FLOAT)", "3.4028235e38"),
    ("DOUBLE", "CAST('4.9E-324' AS DOUBLE)", "5e-324"),
    ("DOUBLE", "CAST('-1.7976931348623157E308' AS DOUBLE)", "-1.7976931348623157e308"),
    ("CHAR(3)", "CAST('ab' AS CHAR(3))", '"ab "'),
    ("STRING", "U&'\\00e9\\0001\"\\\\{}'", '"é\\u0001\\"\\\\{}"'),
    ("STRING", "''", '""'),
    ("BYTES", "X'00FF10'", '"AP8Q"'),
    ("DATE", "DATE '9999-12-31'", '"9999-12-31"'),
    ("TIME(3)", "TIME '23:59:59.999'", '"23:59:59.999"'),
    ("TIMESTAMP(3)", "TIMESTAMP '0001-01-01 00:00:00'", '"0001-01-01 00:00:00"'),
    ("TIMESTAMP(6)", "TIMESTAMP '9999-12-31 23:59:59.999999'", '"9999-12-31 23:59:59.999999"'),
    ("TIMESTAMP(9)", "TIMESTAMP '2261-12-31 23:59:59.999999999'", '"2261-12-31 23:59:59.999999999"'),
    ("TIMESTAMP_LTZ(3)", "TO_TIMESTAMP_LTZ(1606737600123, 3)", '"2020-11-30 12:00:00.123Z"'),
    ("ARRAY<BIGINT>", "ARRAY[CAST(9223372036854775807 AS BIGINT), NULL]", "[9223372036854775807,null]"),
    ("MAP<STRING, INT>", "MAP['a', 1]", '{"a":1}'),
    ("ROW<a INT, b STRING>", "CAST(ROW(1, 'x') AS ROW<a INT, b STRING>)", '{"a":1,"b":"x"}'),
)  # fmt: skip


def run(*statements: str) -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local")
    tables.get_config().set("table.exec.sink.upsert-materialize", "NONE")
    for statement in statements:
        tables.execute_sql(statement).wait()


def read_source(server: Opensearch, index: str, id: str) -> str:
    """The document as the service has it."""
    with urllib.request.urlopen(f"{server.url}/{index}/_source/{id}") as response:
        return response.read().decode()  # type: ignore[no-any-return]


def test_every_type(server: Opensearch) -> None:
    """A document is kept as it is sent, with NULL in each type, too; numbers keep all digits."""
    columns = ", ".join(f"c{number} {kind}" for number, (kind, _, _) in enumerate(VALUES))
    values = ", ".join(expression for _, expression, _ in VALUES)
    nulls = ", ".join(f"CAST(NULL AS {kind})" for kind, _, _ in VALUES)
    server.call("PUT", "/types", {"mappings": {"dynamic": False}})
    run(
        ddl(f"id INT, {columns}, PRIMARY KEY (id) NOT ENFORCED", server.url, index="types"),
        f"INSERT INTO t VALUES (1, {values}), (2, {nulls})",
    )
    shown = ",".join(f'"c{number}":{text}' for number, (_, _, text) in enumerate(VALUES))
    assert read_source(server, "types", "1") == f'{{"id":1,{shown}}}'
    assert set(json.loads(read_source(server, "types", "2")).values()) == {2, None}


def test_versions(server: Opensearch) -> None:
    """An old version, also of a delete, does not come back; the same version is written again."""
    table = "id INT PRIMARY KEY NOT ENFORCED, v BIGINT, name STRING"
    statement = ddl(table, server.url, index="versions", sink__version__column="v")
    run(statement, "INSERT INTO t VALUES (1, 5, 'new'), (2, 7, 'b')")
    run(statement, "INSERT INTO t VALUES (1, 4, 'old'), (2, 7, 'again')")
    assert json.loads(read_source(server, "versions", "1"))["name"] == "new"
    assert json.loads(read_source(server, "versions", "2"))["name"] == "again"


def test_merging_keeps_other_fields(server: Opensearch) -> None:
    first = ddl("id INT PRIMARY KEY NOT ENFORCED, a INT", server.url, index="merged", sink__write_mode="merge")
    second = ddl("id INT PRIMARY KEY NOT ENFORCED, b INT", server.url, index="merged", sink__write_mode="merge")
    run(first, "INSERT INTO t VALUES (1, 10), (2, 20)")
    run(second, "INSERT INTO t VALUES (1, 11)")
    assert json.loads(read_source(server, "merged", "1")) == {"id": 1, "a": 10, "b": 11}


def test_a_rejection_has_the_reason_of_the_service(server: Opensearch) -> None:
    server.call("PUT", "/strict", {"mappings": {"properties": {"n": {"type": "integer"}}}})
    statement = ddl("id STRING PRIMARY KEY NOT ENFORCED, n STRING", server.url, index="strict")
    with pytest.raises(JobExecutionError, match=r"document 'b' of index 'strict'.*failed to parse field \[n\].*'x'"):
        run(statement, "INSERT INTO t VALUES ('a', '1'), ('b', 'x'), ('c', '3')")
    with pytest.raises(JobExecutionError, match="must be lowercase"):
        run(ddl("n INT", server.url, index="UPPER"), "INSERT INTO t VALUES (1)")


def test_documents_by_day(server: Opensearch) -> None:
    statement = ddl("d DATE, n INT", server.url, index="days-{d|yyyy-MM-dd}")
    run(statement, "INSERT INTO t VALUES (DATE '2020-11-30', 1), (DATE '2020-12-01', 2), (DATE '2020-12-01', 3)")
    assert len(server.documents("days-2020-11-30")) == 1
    assert len(server.documents("days-2020-12-01")) == 2


def test_the_program_of_the_page_runs(server: Opensearch, tmp_path: Path) -> None:
    page = "docs/opensearch.md"
    PAGES[page].check(run_page(page, "local", tmp_path, variables={"OPENSEARCH_URL": server.url}))
