"""Plans as JSON and as pictures, and what a savepoint says of queries that have changed."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from penstock.base.errors import CheckpointError, JobExecutionError, UnsupportedError
from penstock.table import EnvironmentSettings, ExplainDetail, TableEnvironment
from penstock.table.expressions import col
from penstock.table.udf import udf

AGGREGATE = "SELECT customer, SUM(price) AS total FROM orders GROUP BY customer"


def environment(**options: str) -> TableEnvironment:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for key, value in {"execution.target": "local", **options}.items():
        tables.get_config().set(key, value)
    tables.execute_sql(
        "CREATE TABLE orders (id BIGINT, customer STRING, price INT) WITH ('connector' = 'datagen', "
        "'rows-per-second' = '1000', 'fields.customer.length' = '1')"
    )
    tables.execute_sql("CREATE TABLE sink (customer STRING, total INT) WITH ('connector' = 'blackhole')")
    return tables


def nodes(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text.partition("== Physical Execution Plan ==")[2])["nodes"]
    return found


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_json_has_the_operators_with_changes_keys_and_state_ids() -> None:
    tables = environment()
    found = nodes(tables.explain_sql(f"INSERT INTO sink {AGGREGATE}", ExplainDetail.JSON_EXECUTION_PLAN))
    source, *_, aggregate, sink = found
    assert source["pact"] == "Data Source"
    assert source["changelogMode"] == "[I]"
    assert source["fields"] == ["customer", "price"]
    assert aggregate["type"] == "Group Aggregate"
    assert aggregate["contents"] == "Aggregate(groupBy=[customer], select=[SUM(price) AS $agg0])"
    assert aggregate["changelogMode"] == "[I,UA]"
    assert aggregate["upsertKeys"] == [["customer"]]
    assert len(aggregate["stateId"]) == 32
    assert sink["pact"] == "Data Sink"
    assert [one["id"] for one in sink["predecessors"]] == [aggregate["id"]]
    assert "stateId" in source


def test_details_may_be_named_in_sql_and_of_tables() -> None:
    tables = environment()
    with tables.execute_sql(
        f"EXPLAIN JSON_EXECUTION_PLAN, ESTIMATED_COST, CHANGELOG_MODE {AGGREGATE}"
    ).collect() as rows:
        (row,) = list(rows)
    table = tables.sql_query(AGGREGATE)
    explained = table.explain(ExplainDetail.JSON_EXECUTION_PLAN, ExplainDetail.ESTIMATED_COST)
    assert [one["type"] for one in nodes(row[0])] == [one["type"] for one in nodes(explained)]
    assert nodes(explained)[-1]["pact"] == "Data Sink"
    assert "Physical Execution Plan" not in table.explain()


def test_advice_stands_with_its_steps() -> None:
    """As in Flink: numbered, at the beginning of the step; windows need none, and options that are set end it."""
    tables = environment()
    text = tables.explain_sql(f"SELECT COUNT(*) FROM ({AGGREGATE})", ExplainDetail.PLAN_ADVICE)
    plan, _, advice = text.partition("== Streams With Advice ==\n")[2].partition("\n\n")
    assert "Aggregate(advice=[1], select=[COUNT(*)" in plan
    assert "Aggregate(advice=[1], groupBy=[customer]" in plan
    assert advice.startswith("advice[1]: [ADVICE] You might want to enable mini-batches")
    assert "advice" not in tables.explain_sql(AGGREGATE)
    for sql in ("SELECT customer FROM orders", "SELECT customer, MAX(price) OVER (ORDER BY PROCTIME()) FROM orders"):
        assert tables.explain_sql(sql, ExplainDetail.PLAN_ADVICE).endswith("\n\nNo available advice...")
    tables.get_config().set("table.exec.mini-batch.enabled", "true")
    tables.get_config().set("table.exec.mini-batch.allow-latency", "1 s")
    tables.get_config().set("table.exec.mini-batch.size", "100")
    assert tables.explain_sql(AGGREGATE, ExplainDetail.PLAN_ADVICE).endswith("No available advice...")


def test_a_compiled_plan_has_advice() -> None:
    plan = environment().compile_plan_sql(f"INSERT INTO sink {AGGREGATE}")
    assert "[ADVICE]" in plan.explain(ExplainDetail.PLAN_ADVICE)
    assert "[ADVICE]" not in plan.explain()


@pytest.mark.spark
def test_a_batch_has_costs_of_spark_and_no_advice() -> None:
    """Flink refuses advice in batch, too."""
    tables = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    assert "Statistics(sizeInBytes=" in tables.explain_sql("SELECT 1 AS n", ExplainDetail.ESTIMATED_COST)
    assert "Statistics" not in tables.explain_sql("SELECT 1 AS n")
    with pytest.raises(UnsupportedError, match="PLAN_ADVICE is not supported under batch mode"):
        tables.explain_sql("SELECT 1 AS n", ExplainDetail.PLAN_ADVICE)


def test_explaining_starts_nothing() -> None:
    """The same query can be planned again, and has the same ids."""
    tables = environment()
    first, second = (nodes(tables.explain_sql(AGGREGATE, ExplainDetail.JSON_EXECUTION_PLAN)) for _ in range(2))
    assert first == second


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_a_table_is_drawn() -> None:
    table = (
        environment().from_path("orders").group_by(col("customer")).select(col("customer"), col("price").sum.alias("s"))
    )
    plan = table.plan()
    assert "groupBy=[customer]" in plan.to_mermaid()
    assert plan.to_mermaid().startswith("flowchart LR")
    texts = [one.text for one in ElementTree.fromstring(plan.to_svg()).iter("{http://www.w3.org/2000/svg}text")]
    assert "Group Aggregate" in texts
    assert any("groupBy=[customer]" in (text or "") for text in texts)


def test_a_statement_set_is_drawn_as_one_job() -> None:
    tables = environment()
    statements = tables.create_statement_set()
    for where in ("price > 1", "price > 2"):
        statements.add_insert_sql(f"INSERT INTO sink SELECT customer, price FROM orders WHERE {where}")
    assert statements.plan().to_text().count("Sink sink") == 2


# --- savepoints of other queries --------------------------------------------------------------------------------------


#: set when a row has come; the barrier of a savepoint that is asked for then comes behind it
HAS_COME = threading.Event()


def seen(price: int) -> bool:
    """Let every row pass, and tell that it did."""
    HAS_COME.set()
    return True


def grouped(aggregate: str) -> str:
    return f"SELECT customer, {aggregate}(price) AS total FROM orders WHERE seen(price) GROUP BY customer"


def started(query: str, **options: str) -> Any:
    tables = environment(**options)
    tables.create_temporary_function("seen", udf(seen, result_type="BOOLEAN"))
    return tables.execute_sql(f"INSERT INTO sink {query}").get_job_client()


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of an INSERT of sums, which has state."""
    job = started(grouped("SUM"))
    assert HAS_COME.wait(60)
    return str(job.stop_with_savepoint(False, str(tmp_path_factory.mktemp("savepoints"))).result(60))


def restored(savepoint: str, query: str, **more: str) -> Any:
    return started(query, **{"execution.state-recovery.path": savepoint, **more})


def test_an_unchanged_query_goes_on(savepoint: str, tmp_path: Path) -> None:
    client = restored(savepoint, grouped("SUM").replace("AS total", "AS other"))
    client.stop_with_savepoint(False, str(tmp_path)).result(60)


def test_a_changed_query_is_told_with_its_steps(savepoint: str) -> None:
    """What is left over of the query before, and what is new in this one, each by what it does."""
    with pytest.raises((CheckpointError, JobExecutionError)) as error:
        restored(savepoint, grouped("MAX")).get_job_execution_result().result(60)
    text = "\n".join(str(one) for one in _causes(error.value))
    assert "left over: 'Group Aggregate'" in text
    assert "which was Aggregate(groupBy=[customer], select=[SUM(price) AS $agg0])" in text
    assert "new, without state: 'Group Aggregate', which is Aggregate(groupBy=[customer], select=[MAX(price)" in text
    assert "execution.state-recovery.ignore-unclaimed-state: true" in text


def test_state_of_a_changed_query_can_be_dropped(savepoint: str, tmp_path: Path) -> None:
    client = restored(savepoint, grouped("MAX"), **{"execution.state-recovery.ignore-unclaimed-state": "true"})
    client.stop_with_savepoint(False, str(tmp_path)).result(60)


def _causes(error: BaseException | None) -> list[BaseException]:
    return [] if error is None else [error, *_causes(error.__cause__)]
