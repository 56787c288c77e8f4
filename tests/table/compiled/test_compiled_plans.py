"""Compiled plans: those of earlier releases run, states keep their ids, and what is missing is refused by name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.table.compiled.cases import INSERTS, environment, plan_file

from penstock.base.errors import PenstockError, UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.properties import state_id
from penstock.sql.stream import planner
from penstock.table import DataTypes, EnvironmentSettings, ExplainDetail, PlanReference, TableEnvironment
from penstock.table.expressions import col
from penstock.table.udf import udf

COUNTS = "INSERT INTO counts SELECT drink, COUNT(*), SUM(price) FROM orders GROUP BY drink"


@pytest.fixture
def tables(tmp_path: Path) -> TableEnvironment:
    return environment(tmp_path)


def run(result: Any, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The rows that a job prints."""
    capsys.readouterr()
    result.wait()
    return sorted(capsys.readouterr().out.splitlines())


def with_other_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute ids of states as a later release might."""
    monkeypatch.setattr(planner, "state_id", lambda node, role, known: state_id(node, f"later {role}", known))


def ids_of(explanation: str) -> set[str]:
    return set(re.findall(r'"stateId": ?"(\w+)"', explanation))


# --- plans of earlier releases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", INSERTS)
def test_a_plan_that_was_kept_gives_the_rows_of_its_statement(
    name: str, tables: TableEnvironment, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(tables.execute_sql(INSERTS[name]), capsys)
    with_other_ids(monkeypatch)
    plan = tables.load_plan(PlanReference.from_file(plan_file(name)))
    assert expected
    assert run(plan.execute(), capsys) == expected
    stored = {
        step_id
        for node in json.loads(plan.as_json_string())["nodes"]
        for ids in node.get("stateIds", {}).values()
        for step_id in ids
    }
    assert ids_of(plan.explain(ExplainDetail.JSON_EXECUTION_PLAN)) == stored


@pytest.mark.parametrize("name", INSERTS)
def test_a_statement_is_compiled_to_a_plan_of_the_same_steps(name: str, tables: TableEnvironment) -> None:
    detail = ExplainDetail.JSON_EXECUTION_PLAN
    plan = tables.compile_plan_sql(INSERTS[name])
    direct = tables.explain_sql(INSERTS[name], detail)
    assert plan.explain(detail) == direct[direct.index("== Streams ==") :]
    assert tables.load_plan(PlanReference.from_json_string(plan.as_json_string())).explain(detail) == plan.explain(
        detail
    )


def test_a_savepoint_fits_the_plan_where_later_code_computes_other_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count goes on; without the plan the state has no step."""
    query = "INSERT INTO numbers SELECT COUNT(*) FROM endless"

    def started(savepoint: str | None = None) -> TableEnvironment:
        tables = environment(tmp_path)
        tables.execute_sql("CREATE TABLE endless (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000')")
        tables.get_config().set("execution.checkpointing.savepoint-dir", str(tmp_path / "savepoints"))
        if savepoint is not None:
            tables.get_config().set("execution.state-recovery.path", savepoint)
        return tables

    def lines_until_stopped(result: Any) -> list[str]:
        client = result.get_job_client()
        lines: list[str] = []
        while len(lines) < 3:
            lines += capsys.readouterr().out.splitlines()
        path.append(str(client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()))
        return lines + capsys.readouterr().out.splitlines()

    path: list[str] = []
    plan = started().compile_plan_sql(query).as_json_string()
    last = lines_until_stopped(started().execute_sql(query))[-1]
    with_other_ids(monkeypatch)
    tables = started(path[-1])
    first = lines_until_stopped(tables.load_plan(PlanReference.from_json_string(plan)).execute())[0]
    assert (last[:3], first) == ("+U[", f"-U{last[2:]}")
    with pytest.raises(PenstockError, match="state"):
        started(path[-1]).execute_sql(query).wait()


# --- statements and files --------------------------------------------------------------------------------------------


def test_statements_compile_and_execute(
    tables: TableEnvironment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plans" / "counts.json"
    expected = run(tables.execute_sql(COUNTS), capsys)
    tables.execute_sql(f"COMPILE PLAN '{file}' FOR {COUNTS}")
    assert run(tables.execute_sql(f"EXECUTE PLAN '{file}'"), capsys) == expected
    with pytest.raises(ValidationError, match=r"Cannot overwrite the plan file .*table.plan.force-recompile"):
        tables.execute_sql(f"COMPILE PLAN '{file}' FOR {COUNTS}")
    other = "INSERT INTO texts SELECT drink FROM orders WHERE id = 4"
    tables.execute_sql(f"COMPILE PLAN 'file://{file}' IF NOT EXISTS FOR {other}")
    assert run(tables.execute_sql(f"COMPILE AND EXECUTE PLAN '{file}' FOR {other}"), capsys) == expected
    tables.get_config().set("table.plan.force-recompile", "true")
    assert run(tables.execute_sql(f"COMPILE AND EXECUTE PLAN '{file}' FOR {other}"), capsys) == ["+I[gin]"]
    statements = "STATEMENT SET BEGIN INSERT INTO texts VALUES ('a'); INSERT INTO numbers VALUES (1); END"
    tables.execute_sql(f"COMPILE PLAN '{file}' FOR {statements}")
    assert run(tables.execute_sql(f"EXECUTE PLAN '{file}'"), capsys) == ["+I[1]", "+I[a]"]


def test_sets_and_pipelines_compile(
    tables: TableEnvironment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    statements = tables.create_statement_set().add_insert_sql("INSERT INTO texts VALUES ('a')")
    assert run(statements.compile_plan().execute(), capsys) == ["+I[a]"]
    plan = tables.from_path("drinks").select(col("kind")).insert_into("texts").compile_plan()
    plan.write_to_file(tmp_path / "kinds.json")
    plan.write_to_file(tmp_path / "kinds.json", ignore_if_exists=True)
    with pytest.raises(ValidationError, match="Cannot overwrite"):
        plan.write_to_file(tmp_path / "kinds.json")
    loaded = tables.load_plan(PlanReference.from_file(tmp_path / "kinds.json"))
    assert run(loaded.execute(), capsys) == ["+I[hot]", "+I[strong]"]
    assert str(loaded) == plan.explain()
    loaded.print_json_string()
    assert json.loads(capsys.readouterr().out)["penstockVersion"] == plan.get_flink_version()


# --- catalogs --------------------------------------------------------------------------------------------------------


def test_options_of_a_query_are_those_of_the_plan(tables: TableEnvironment, tmp_path: Path) -> None:
    tables.get_config().set("table.exec.mini-batch.enabled", "true")
    tables.get_config().set("table.exec.mini-batch.allow-latency", "1 s")
    tables.get_config().set("table.exec.mini-batch.size", "10")
    text = tables.compile_plan_sql(COUNTS).as_json_string()
    assert json.loads(text)["configuration"]["table.exec.mini-batch.size"] == "10"
    other = environment(tmp_path)
    plan = other.load_plan(PlanReference.from_json_string(text))
    detail = ExplainDetail.JSON_EXECUTION_PLAN
    assert plan.explain(detail) == tables.load_plan(PlanReference.from_json_string(text)).explain(detail)


def test_all_of_a_table_is_in_the_plan(tables: TableEnvironment, capsys: pytest.CaptureFixture[str]) -> None:
    text = tables.compile_plan_sql("INSERT INTO texts SELECT name FROM drinks").as_json_string()
    empty = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for restores in ("ALL", "ALL_ENFORCED"):
        empty.get_config().set("table.plan.restore.catalog-objects", restores)
        plan = empty.load_plan(PlanReference.from_json_string(text))
        assert run(plan.execute(), capsys) == ["+I[rum]", "+I[tea]"]
    empty.get_config().set("table.plan.restore.catalog-objects", "IDENTIFIER")
    with pytest.raises(ValidationError, match=r"needs the table .*drinks, and no catalog has it"):
        empty.load_plan(PlanReference.from_json_string(text))


@pytest.mark.parametrize("stores", ["SCHEMA", "IDENTIFIER"])
def test_options_come_from_the_catalog(
    stores: str, tables: TableEnvironment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables.get_config().set("table.plan.compile.catalog-objects", stores)
    hint = "/*+ OPTIONS('csv.ignore-parse-errors' = 'true') */"
    text = tables.compile_plan_sql(f"INSERT INTO texts SELECT name FROM drinks {hint}").as_json_string()
    assert str(tmp_path) not in text
    assert "csv.ignore-parse-errors" in text
    assert ("columns" in json.loads(text)["nodes"][0]["table"]) is (stores == "SCHEMA")
    (tmp_path / "other.csv").write_text("gin,cold\n")
    tables.execute_sql(f"ALTER TABLE drinks SET ('path' = '{tmp_path}/other.csv')")
    plan = tables.load_plan(PlanReference.from_json_string(text))
    assert run(plan.execute(), capsys) == ["+I[gin]"]
    tables.get_config().set("table.plan.restore.catalog-objects", "ALL_ENFORCED")
    with pytest.raises(ValidationError, match="ALL_ENFORCED"):
        tables.load_plan(PlanReference.from_json_string(text))


def test_a_table_with_other_columns_is_refused(tables: TableEnvironment) -> None:
    text = tables.compile_plan_sql("INSERT INTO texts SELECT name FROM drinks").as_json_string()
    tables.execute_sql("ALTER TABLE drinks MODIFY kind INT")
    with pytest.raises(ValidationError, match=r"In the plan: name STRING, kind STRING\. In the catalog: .*kind INT"):
        tables.load_plan(PlanReference.from_json_string(text))


def test_functions_are_found_by_name(tables: TableEnvironment, capsys: pytest.CaptureFixture[str]) -> None:
    shout = udf(lambda text: f"{text}!", result_type=DataTypes.STRING())
    tables.create_temporary_function("shout", shout)
    text = tables.compile_plan_sql("INSERT INTO texts SELECT shout(name) FROM drinks").as_json_string()
    plan = tables.load_plan(PlanReference.from_json_string(text))
    assert run(plan.execute(), capsys) == ["+I[rum!]", "+I[tea!]"]
    tables.drop_temporary_function("shout")
    with pytest.raises(ValidationError, match=r"calls the scalar function 'shout', and there is none"):
        tables.load_plan(PlanReference.from_json_string(text))
    unnamed = tables.from_path("drinks").select(shout(col("name"))).insert_into("texts")
    with pytest.raises(UnsupportedError, match="register it with create_function"):
        unnamed.compile_plan()


# --- what is refused -------------------------------------------------------------------------------------------------


def test_what_no_plan_can_hold_is_refused(tables: TableEnvironment, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="Table cannot be compiled"):
        tables.from_elements([("a",)], ["t"]).insert_into("texts").compile_plan()
    with pytest.raises(ValidationError, match="only accepts"):
        tables.compile_plan_sql("SELECT 1")
    with pytest.raises(ValidationError, match="Cannot load the plan file"):
        tables.execute_sql(f"EXECUTE PLAN '{tmp_path}/none.json'")
    with pytest.raises(UnsupportedError, match="a file of this machine"):
        tables.execute_sql("EXECUTE PLAN 's3://bucket/plan.json'")
    batch = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    batch.execute_sql("CREATE TABLE texts (t STRING) WITH ('connector' = 'print')")
    with pytest.raises(UnsupportedError, match="not supported in batch mode"):
        batch.compile_plan_sql("INSERT INTO texts VALUES ('a')")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"formatVersion": 99}, "is of version 99, made by Penstock"),
        ({"nodes": [{"id": 0, "type": "Sieve"}]}, "an object of Sieve, which this release does not know"),
        ({"nodes": [{"id": 0, "type": "Values", "schema": {"$columns": []}, "rows": [], "colour": 1}]}, "has colour"),
    ],
)
def test_a_plan_of_a_later_release_is_refused(changed: dict[str, Any], message: str, tables: TableEnvironment) -> None:
    plan = json.loads(plan_file("values").read_text()) | changed
    with pytest.raises(ValidationError, match=message):
        tables.load_plan(PlanReference.from_json_string(json.dumps(plan)))


@pytest.mark.parametrize("text", ["", "[]", "{}", "SELECT 1"])
def test_other_text_is_no_plan(text: str, tables: TableEnvironment) -> None:
    with pytest.raises(ValidationError, match="no compiled plan"):
        tables.load_plan(PlanReference.from_json_string(text))
