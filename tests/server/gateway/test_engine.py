"""SQL through the gateway: statements, jobs, options, errors, and sessions that do not see each other."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from tests.server.gateway.rig import LOCAL, Client, gateway, last_cause

from penstock.base.configuration import Configuration
from penstock.base.errors import CheckpointError, JobExecutionError, UnsupportedError
from penstock.base.job import CompletableFuture, JobExecutionResult, JobStatus
from penstock.cli.gateway.engine import ENDED_MAX, Gateway, GatewayJobs, TableEngine
from penstock.cli.program.launch import LOG_VARIABLE
from penstock.server.attachment import dispatcher
from penstock.server.dispatcher import Dispatcher
from penstock.sql.spark.executor import BatchQuery, BatchQueryClient

SEQUENCE = (
    "CREATE TABLE {name} (id BIGINT) WITH ('connector' = 'datagen', 'fields.id.kind' = 'sequence', "
    "'fields.id.start' = '1', 'fields.id.end' = '{end}'{more})"
)
ENDLESS = SEQUENCE.format(name="endless", end=1_000_000_000, more=", 'rows-per-second' = '100'")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with gateway() as running:
        yield running


@pytest.fixture
def session(client: Client) -> Iterator[str]:
    opened = client.open()
    yield opened
    client.json("DELETE", opened)


@pytest.fixture(scope="module")
def with_jobs() -> Iterator[Client]:
    """A gateway that knows the jobs of this process."""
    with Gateway(Configuration.from_dict(LOCAL), dispatcher()) as running:
        yield Client(running.server.url)


def test_a_query_has_its_columns_rows_and_kinds(client: Client, session: str) -> None:
    query = "SELECT y, COUNT(*) AS c FROM (VALUES (1, 'a'), (2, 'b'), (3, 'a')) AS t (x, y) GROUP BY y"
    pages = list(client.pages(client.submit(session, query)))
    assert {page["isQueryResult"] for page in pages} == {True}
    assert len({page["jobID"] for page in pages}) == 1
    names = [(column["name"], column["logicalType"]["type"]) for column in pages[0]["results"]["columns"]]
    assert names == [("y", "CHAR"), ("c", "BIGINT")]
    rows = sorted((row["kind"], *row["fields"]) for page in pages for row in page["results"]["data"])
    assert rows == [
        ("INSERT", "a", 1),
        ("INSERT", "b", 1),
        ("UPDATE_AFTER", "a", 2),
        ("UPDATE_BEFORE", "a", 1),
    ]


def test_statements_without_a_job(client: Client, session: str) -> None:
    (page, end) = client.pages(client.submit(session, "SHOW CURRENT CATALOG;"))
    assert page["isQueryResult"] is False
    assert page["resultKind"] == "SUCCESS_WITH_CONTENT"
    assert "jobID" not in page
    assert page["results"]["data"] == [{"kind": "INSERT", "fields": ["default_catalog"]}]
    assert end["resultType"] == "EOS"
    (page, _) = client.pages(client.submit(session, "CREATE DATABASE d"))
    assert page["resultKind"] == "SUCCESS"
    assert page["results"]["data"] == [{"kind": "INSERT", "fields": ["OK"]}]


def test_nanoseconds_and_far_years_are_kept(client: Client, session: str) -> None:
    query = "SELECT TIMESTAMP '2024-01-01 12:34:00.123456789', TIMESTAMP '0001-01-01 00:00:00'"
    assert client.rows(session, query) == [["2024-01-01T12:34:00.123456789", "0001-01-01T00:00:00"]]


def test_instants_follow_the_options_of_the_session(client: Client) -> None:
    session = client.open(**{"table.local-time-zone": "Asia/Kolkata"})
    query = "SELECT TO_TIMESTAMP_LTZ(1704110400123, 3)"
    assert client.rows(session, query) == [["2024-01-01T17:30:00.123Z"]]
    client.rows(session, "SET 'penstock.sql-gateway.true-instants' = 'true'")
    assert client.rows(session, query) == [["2024-01-01T12:00:00.123Z"]]


def test_insert_returns_its_job(client: Client, session: str) -> None:
    client.rows(session, SEQUENCE.format(name="numbers", end=10, more=""))
    client.rows(session, "CREATE TABLE sink (id BIGINT) WITH ('connector' = 'blackhole')")
    for sync in ("false", "true"):
        client.rows(session, f"SET 'table.dml-sync' = '{sync}'")
        page, _ = client.pages(client.submit(session, "INSERT INTO sink SELECT * FROM numbers"))
        assert page["isQueryResult"] is False
        assert page["resultKind"] == "SUCCESS_WITH_CONTENT"
        assert page["results"]["columns"][0]["name"] == "job id"
        assert page["results"]["data"] == [{"kind": "INSERT", "fields": [page["jobID"]]}]
        assert client.json("GET", session)["properties"]["table.dml-sync"] == sync
    client.rows(session, "BEGIN STATEMENT SET")
    assert client.rows(session, "INSERT INTO sink SELECT * FROM numbers") == [["OK"]]
    ((job_id,),) = client.rows(session, "END")
    assert len(job_id) == 32


def test_a_statement_that_waits_for_its_job_can_be_cancelled(with_jobs: Client) -> None:
    """As in Flink, the job goes on; STOP JOB ends it."""
    session = with_jobs.open(**{"table.dml-sync": "true"})
    with_jobs.rows(session, ENDLESS)
    with_jobs.rows(session, "CREATE TABLE sink (id BIGINT) WITH ('connector' = 'blackhole')")
    operation = with_jobs.submit(session, "INSERT INTO sink SELECT * FROM endless")
    while not any(row[2] == "RUNNING" for row in with_jobs.rows(with_jobs.open(), "SHOW JOBS")):
        assert with_jobs.json("GET", f"{operation}/result/0")["resultType"] == "NOT_READY"
    assert with_jobs.json("POST", f"{operation}/cancel") == {"status": "CANCELED"}
    running = [row for row in with_jobs.rows(session, "SHOW JOBS") if row[2] == "RUNNING"]
    (job_id, name, _, began) = running[0]
    assert name == "insert-into_default_catalog.default_database.sink"
    assert began.endswith("Z")
    assert with_jobs.rows(session, f"DESCRIBE JOB '{job_id}'")[0][0] == job_id
    assert with_jobs.rows(session, f"STOP JOB '{job_id}'") == [["OK"]]
    while with_jobs.rows(session, f"DESCRIBE JOB '{job_id}'")[0][2] != "CANCELED":
        pass
    assert "SHOW JOBS lists" in with_jobs.failure(session, f"STOP JOB '{'0' * 32}'")


def test_a_job_is_stopped_with_a_savepoint(with_jobs: Client, tmp_path: Path) -> None:
    session = with_jobs.open(**{"execution.checkpointing.savepoint-dir": str(tmp_path)})
    with_jobs.rows(session, ENDLESS)
    with_jobs.rows(session, "CREATE TABLE sink (id BIGINT) WITH ('connector' = 'blackhole')")
    ((job_id,),) = with_jobs.rows(session, "INSERT INTO sink SELECT * FROM endless")
    while with_jobs.rows(session, f"DESCRIBE JOB '{job_id}'")[0][2] != "RUNNING":
        pass
    page, _ = with_jobs.pages(with_jobs.submit(session, f"STOP JOB '{job_id}' WITH SAVEPOINT"))
    assert [column["name"] for column in page["results"]["columns"]] == ["savepoint path"]
    ((path,),) = [row["fields"] for row in page["results"]["data"]]
    assert Path(path.removeprefix("file://")).is_relative_to(tmp_path)
    while with_jobs.rows(session, f"DESCRIBE JOB '{job_id}'")[0][2] != "FINISHED":
        pass


def test_close_ends_the_job_of_a_query_in_the_middle(with_jobs: Client) -> None:
    session = with_jobs.open()
    with_jobs.rows(session, ENDLESS)
    operation = with_jobs.submit(session, "SELECT id FROM endless")
    found: list[int] = []
    for page in with_jobs.pages(operation):
        found += [row["fields"][0] for row in page["results"]["data"]]
        if len(found) > 3:
            break
    assert found == list(range(1, len(found) + 1))
    assert with_jobs.json("GET", f"{operation}/status") == {"status": "FINISHED"}
    assert with_jobs.rows(session, f"DESCRIBE JOB '{page['jobID']}'")[0][2] == "RUNNING"
    assert with_jobs.json("DELETE", f"{operation}/close") == {"status": "CLOSED"}
    while with_jobs.rows(session, f"DESCRIBE JOB '{page['jobID']}'")[0][2] != "CANCELED":
        pass


def test_sessions_do_not_see_each_other(client: Client) -> None:
    one, other = client.open(), client.open()
    client.rows(one, "CREATE TABLE only_here (a INT) WITH ('connector' = 'blackhole')")
    client.rows(one, "CREATE DATABASE d")
    client.rows(one, "USE d")
    client.rows(one, "SET 'my.key' = 'mine'")
    assert client.rows(other, "SHOW TABLES") == []
    assert client.rows(other, "SHOW DATABASES") == [["default_database"]]
    assert client.rows(other, "SHOW CURRENT DATABASE") == [["default_database"]]
    assert "my.key" not in client.json("GET", other)["properties"]
    assert client.json("GET", one)["properties"]["my.key"] == "mine"


@pytest.mark.slow
def test_100_sessions_at_once(client: Client) -> None:
    def use(number: int) -> list[list[int]]:
        session = client.open()
        client.rows(session, f"CREATE VIEW v AS SELECT {number} AS x")
        rows = client.rows(session, "SELECT x FROM v")
        sessions.append(session)
        return rows

    sessions: list[str] = []
    with ThreadPoolExecutor(20) as threads:
        assert list(threads.map(use, range(100))) == [[[number]] for number in range(100)]
    assert len(set(sessions)) == 100
    for session in sessions:
        client.json("DELETE", session)


@pytest.mark.parametrize(
    "options", [{"parallelism.default": "x"}, {"table.local-time-zone": "Nowhere"}, {"execution.target": "remote"}]
)
def test_a_wrong_option_fails_the_statements_that_need_it(client: Client, options: dict[str, str]) -> None:
    (key,) = options
    session = client.open(**options)
    assert key in client.failure(session, "SELECT 1")
    client.rows(session, f"RESET '{key}'")
    assert client.rows(session, "SELECT 1") == [[1]]


def test_options_of_a_statement_apply_to_it_alone(client: Client, session: str) -> None:
    client.rows(session, "SET 'a.key' = 'of the session'")
    given = {"a.key": "of the statement", "b.key": "new"}
    rows = dict(client.rows(session, "SET", executionConfig=given))
    assert (rows["a.key"], rows["b.key"]) == ("of the statement", "new")
    rows = dict(client.rows(session, "SET"))
    assert rows["a.key"] == "of the session"
    assert "b.key" not in rows


def test_reset_returns_to_the_options_of_the_gateway(client: Client) -> None:
    session = client.open(**{"my.key": "x"})
    client.rows(session, "RESET")
    properties = client.json("GET", session)["properties"]
    assert "my.key" not in properties
    assert properties["execution.target"] == "local"


def test_no_secret_of_an_option_is_told(client: Client) -> None:
    session = client.open(**{"s3.secret-key": "swordfish1"})
    client.rows(session, "SET 'my.password' = 'swordfish2'")
    properties = client.json("GET", session)["properties"]
    assert properties["s3.secret-key"] == properties["my.password"] == "******"
    assert "swordfish" not in json.dumps(client.rows(session, "SET"))
    assert "swordfish" not in client.failure(session, "SELEC 'swordfish1', 'my.password' = 'swordfish2'")


def test_options_of_the_client_are_kept_from_jobs(client: Client) -> None:
    """The SQL client sends the options of its own configuration, such as the address of a cluster."""
    session = client.open(**{"rest.port": "1", "rest.address": "elsewhere", "$internal.x": "y"})
    assert client.json("GET", session)["properties"]["rest.address"] == "elsewhere"
    assert client.rows(session, "SELECT 1") == [[1]]


@pytest.mark.parametrize(
    ("statement", "cause"),
    [
        ("SELEC 1", "org.apache.flink.table.api.SqlParserException: SQL parse failed."),
        ("", "org.apache.flink.table.api.SqlParserException: SQL parse failed."),
        ("SELECT * FROM nosuch", "org.apache.flink.table.api.ValidationException: Object 'nosuch' not found"),
        ("DROP TABLE nosuch", "org.apache.flink.table.api.ValidationException: Table with identifier"),
        ("SELECT 1; SELECT 2", "java.lang.IllegalArgumentException: only single statement supported"),
        ("SELECT 1/0", "org.apache.flink.table.api.TableRuntimeException: Division by zero"),
        (
            "ADD JAR 'x.jar'",
            "java.lang.UnsupportedOperationException: ADD JAR and REMOVE JAR are for functions in Java",
        ),
        ("QUIT", "java.lang.UnsupportedOperationException: QUIT, CLEAR and HELP are commands of a shell"),
        ("END", "org.apache.flink.table.api.ValidationException: No Statement Set to submit."),
        ("SET 'table.local-time-zone' = 'Nowhere'", "java.lang.IllegalArgumentException: table.local-time-zone"),
    ],
)
def test_errors_have_flinks_classes_and_say_what_is_wrong(
    client: Client, session: str, statement: str, cause: str
) -> None:
    assert client.failure(session, statement).startswith(cause)
    assert client.rows(session, "SHOW CURRENT CATALOG") == [["default_catalog"]], "the session goes on"


def test_configure_takes_what_changes_the_session(client: Client, session: str) -> None:
    for statement in (
        *("SET 'my.key' = 'x'", "RESET 'other.key'", "CREATE DATABASE d", "USE d", "USE CATALOG default_catalog"),
        *("CREATE TABLE t (a INT) WITH ('connector' = 'blackhole')", "ALTER TABLE t RENAME TO u", "DROP TABLE u"),
        *("CREATE VIEW v AS SELECT 1 AS a", "DROP VIEW v", "USE default_database"),
    ):
        assert client.json("POST", f"{session}/configure-session", {"statement": statement}) == {}
    assert client.json("GET", session)["properties"]["my.key"] == "x"
    for statement in ("SELECT 1", "SHOW TABLES", "INSERT INTO t VALUES (1)", "CREATE TABLE t AS SELECT 1 AS a"):
        code, text = client.ask("POST", f"{session}/configure-session", {"statement": statement})
        assert code == 500
        assert f"Unsupported statement for configuring session: {statement}" in last_cause(text)


def test_completion_knows_the_tables_of_the_session(client: Client, session: str) -> None:
    client.rows(session, "CREATE TABLE orders (a INT) WITH ('connector' = 'blackhole')")
    body = {"statement": "SELECT * FROM ord", "position": 17}
    assert client.json("GET", f"{session}/complete-statement", body) == {"candidates": ["orders"]}


def test_maps_that_json_lacks_are_sent_as_text(client: Client, session: str) -> None:
    operation = client.submit(session, "SELECT MAP[1, 'x'] AS m")
    while True:
        code, text = client.ask("GET", f"{operation}/result/0")
        if code == 500:
            break
        assert json.loads(text)["resultType"] == "NOT_READY"
    (message,) = json.loads(text)["errors"]
    assert message.startswith("Internal server error. Could not map response to JSON. Column m: the keys of MAP<INT")
    assert [page["results"]["data"] for page in client.pages(operation, "PLAIN_TEXT") if page["results"]["data"]] == [
        [{"kind": "INSERT", "fields": ["{1=x}"]}]
    ]


def test_a_script_runs_in_a_process_of_its_own(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the options of the session and of the call; its output is kept in a file."""
    monkeypatch.setenv(LOG_VARIABLE, str(tmp_path))
    session = client.open(**{"my.key": "of the session", "rest.port": "1"})
    script = tmp_path / "script.sql"
    script.write_text("SELECT 'tea' AS drink;\nSET;\n")
    pause = threading.Event()
    with caplog.at_level(logging.INFO, "penstock.gateway"):
        for body in ({"script": script.read_text()}, {"scriptUri": str(script)}):
            deployed = client.json(
                "POST", f"{session}/scripts", body | {"executionConfig": {"other.key": "of the call"}}
            )
            name = deployed["clusterID"]
            while not any(f"{name} has ended with 0" in record.getMessage() for record in caplog.records):
                assert not any(f"{name} has ended" in record.getMessage() for record in caplog.records)
                pause.wait(0.05)
            (log,) = tmp_path.glob(f"{name}*.log")
            output = log.read_text()
            for text in ("tea", "of the session", "of the call"):
                assert text in output
            assert "rest.port" not in output


def test_a_script_that_cannot_run_is_refused(client: Client, session: str, tmp_path: Path) -> None:
    for body, reason in (
        ({"script": "SELECT 1; SELEC 2;"}, "SQL parse failed."),
        ({"scriptUri": str(tmp_path / "nosuch.sql")}, "nosuch.sql cannot be read"),
        ({"scriptUri": "nosuch://x"}, "nosuch://x cannot be read"),
    ):
        code, text = client.ask("POST", f"{session}/scripts", body)
        assert code == 500
        assert reason in last_cause(text)


class MadeUpQuery:
    """A query of Spark that runs until it is cancelled."""

    def __init__(self) -> None:
        self.ended: CompletableFuture[JobExecutionResult] = CompletableFuture()

    def status(self) -> JobStatus:
        return JobStatus.CANCELED if self.ended.done() else JobStatus.RUNNING

    def cancel(self) -> None:
        self.ended.complete_exceptionally(JobExecutionError("collect", "it was cancelled"))

    def outcome(self) -> CompletableFuture[JobExecutionResult]:
        return self.ended


def test_queries_of_spark_are_listed_and_stopped() -> None:
    """By their ids, as other jobs; they have no savepoints, and the oldest ended ones are forgotten."""
    jobs = GatewayJobs(Dispatcher())
    engine = TableEngine(Configuration.from_dict(LOCAL), {}, jobs)

    def run(statement: str) -> list[Sequence[Any]]:
        return [values for _, values in engine.run(statement, {}, lambda: False).rows]

    client = BatchQueryClient(cast(BatchQuery, MadeUpQuery()))
    jobs.note(client, "collect")
    job_id = str(client.get_job_id())
    assert [row[:3] for row in run("SHOW JOBS")] == [(job_id, "collect", "RUNNING")]
    with pytest.raises(CheckpointError, match="no savepoints"):
        run(f"STOP JOB '{job_id}' WITH SAVEPOINT")
    with pytest.raises(UnsupportedError, match="EXPLAIN ANALYZE with the query itself"):
        run(f"EXPLAIN ANALYZE JOB '{job_id}'")
    assert run(f"STOP JOB '{job_id}'") == [("OK",)]
    assert [row[:3] for row in run(f"DESCRIBE JOB '{job_id.upper()}'")] == [(job_id, "collect", "CANCELED")]
    for _ in range(ENDED_MAX + 1):
        query = MadeUpQuery()
        query.cancel()
        jobs.note(BatchQueryClient(cast(BatchQuery, query)), "collect")
    listed = [row[0] for row in run("SHOW JOBS")]
    assert len(listed) == ENDED_MAX
    assert job_id not in listed


@pytest.mark.spark
def test_a_query_in_batch_mode_is_listed_and_analyzed(with_jobs: Client) -> None:
    """EXPLAIN ANALYZE has Spark's operators."""
    session = with_jobs.open(**{"execution.runtime-mode": "BATCH", "execution.target": "spark"})
    query = "SELECT x, COUNT(*) FROM (VALUES (1), (2), (1)) AS t (x) GROUP BY x"
    pages = list(with_jobs.pages(with_jobs.submit(session, query)))
    job_id = pages[0]["jobID"]
    assert [row[1:3] for row in with_jobs.rows(session, "SHOW JOBS") if row[0] == job_id] == [[query, "FINISHED"]]
    (row,) = with_jobs.rows(session, f"EXPLAIN ANALYZE {query}")
    assert "== Analyzed Query ==" in row[0]
    assert "number of output rows: 2" in row[0]
    with_jobs.json("DELETE", session)


def test_explain_analyze_runs_a_query_and_is_cancelled_with_its_job(with_jobs: Client) -> None:
    """The figures come at the end of the job."""
    session = with_jobs.open()
    with_jobs.rows(session, SEQUENCE.format(name="few", end=1_000, more=""))
    ((text,),) = with_jobs.rows(session, "EXPLAIN ANALYZE SELECT MOD(id, 10), COUNT(*) FROM few GROUP BY MOD(id, 10)")
    assert "== Analyzed Job ==" in text
    assert re.search(r"Group Aggregate +\d+ +1,000 +1,990", text)
    with_jobs.rows(session, ENDLESS)
    known = len(dispatcher().jobs())
    operation = with_jobs.submit(session, "EXPLAIN ANALYZE SELECT id FROM endless")
    while len(dispatcher().jobs()) == known:
        pass
    with_jobs.json("POST", f"{operation}/cancel")
    assert dispatcher().jobs()[-1].handle.get_job_execution_result().exception(60) is not None
    with_jobs.json("DELETE", session)
