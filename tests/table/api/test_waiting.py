"""A3: `wait`, the job client and the schema of results, as in PyFlink."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from penstock.base.errors import CallTimeoutError, CheckpointError, JobExecutionError, PenstockError
from penstock.common import JobClient, JobStatus
from penstock.table import DataTypes, EnvironmentSettings, TableEnvironment

TWO_ROWS = "SELECT * FROM (VALUES (1), (2)) AS t (x)"
ENDLESS = "CREATE TABLE endless (x BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '100')"
SILENT = """CREATE TABLE silent (x BIGINT, y AS x) WITH ('connector' = 'datagen', 'rows-per-second' = '1000',
            'fields.x.min' = '1', 'fields.x.max' = '9')"""


def table_environment() -> TableEnvironment:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local")
    return tables


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH"])
@pytest.mark.parametrize("waits", [1, 2])
def test_rows_stay_when_the_program_has_waited(mode: str, waits: int) -> None:
    tables = table_environment()
    tables.get_config().set("execution.runtime-mode", mode)
    result = tables.execute_sql(TWO_ROWS)
    for _ in range(waits):
        result.wait()
    with result.collect() as rows:
        assert [row[0] for row in rows] == [1, 2]


def test_rows_stay_for_print(capsys: pytest.CaptureFixture[str]) -> None:
    result = table_environment().execute_sql(TWO_ROWS)
    result.wait(60_000)
    result.print()
    assert "2 rows in set" in capsys.readouterr().out


def test_waiting_for_no_rows_ends_with_the_job() -> None:
    result = table_environment().execute_sql("SELECT * FROM (VALUES (1)) AS t (x) WHERE x > 1")
    result.wait()
    assert list(result.collect()) == []


def test_waiting_for_an_endless_query_ends_with_its_first_row() -> None:
    tables = table_environment()
    tables.execute_sql(ENDLESS)
    result = tables.execute_sql("SELECT 7 FROM endless")
    result.wait()
    with result.collect() as rows:
        assert next(rows)[0] == 7


def test_waiting_has_a_limit() -> None:
    tables = table_environment()
    tables.execute_sql(SILENT)
    result = tables.execute_sql("SELECT x FROM silent WHERE x > 10")
    with pytest.raises(CallTimeoutError, match="20 ms"):
        result.wait(20)
    tables.execute_sql("CREATE TABLE nowhere (x BIGINT) WITH ('connector' = 'blackhole')")
    insert = tables.execute_sql("INSERT INTO nowhere SELECT x FROM silent")
    with pytest.raises(CallTimeoutError, match="20 ms"):
        insert.wait(20)
    for one in (result, insert):
        client = one.get_job_client()
        assert client is not None
        client.cancel().result()


def test_waiting_raises_what_makes_the_query_fail() -> None:
    result = table_environment().execute_sql("SELECT CAST(x AS INT) FROM (VALUES ('a')) AS t (x)")
    with pytest.raises(PenstockError):
        result.wait()


def test_client_of_a_query_cancels_it_from_another_thread() -> None:
    tables = table_environment()
    tables.execute_sql(SILENT)
    result = tables.execute_sql("SELECT x FROM silent WHERE x > 10")
    outcome: Future[Any] = Future()

    def read() -> None:
        try:
            outcome.set_result(list(result.collect()))
        except PenstockError as error:
            outcome.set_exception(error)

    threading.Thread(target=read).start()
    client = result.get_job_client()
    assert isinstance(client, JobClient)
    assert client.get_job_status().result() in (JobStatus.CREATED, JobStatus.RUNNING)
    assert len(str(client.get_job_id())) == 32
    client.cancel().result()
    with pytest.raises(JobExecutionError, match="cancelled"):
        outcome.result(60)
    assert client.get_job_status().result() is JobStatus.CANCELED


def test_schema_in_the_older_form() -> None:
    schema = table_environment().execute_sql("SELECT 1 AS a, 'x' AS b").get_table_schema()
    assert schema.get_field_names() == ["a", "b"]
    assert schema.get_field_data_type("a") == DataTypes.INT().not_null()


@pytest.mark.spark
def test_client_of_a_query_in_batch() -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    result = tables.execute_sql(TWO_ROWS)
    result.wait()
    client = result.get_job_client()
    assert isinstance(client, JobClient)
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert client.get_job_execution_result().result(60).get_job_id() == client.get_job_id()
    assert client.get_accumulators().result() == {}
    client.cancel().result()
    assert client.get_job_status().result() is JobStatus.FINISHED
    with pytest.raises(CheckpointError, match="no savepoints"):
        client.trigger_savepoint("anywhere").result()
    assert [row[0] for row in result.collect()] == [1, 2]
    failing = tables.execute_sql("SELECT CAST(x AS INT) FROM (VALUES ('a')) AS t (x)")
    with pytest.raises(PenstockError):
        failing.wait()
    failed = failing.get_job_client()
    assert failed is not None
    assert failed.get_job_status().result() is JobStatus.FAILED
