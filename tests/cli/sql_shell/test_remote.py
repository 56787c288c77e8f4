"""The shell at a gateway: files, the prompt's parts, cancellation, jobs, tokens, and errors."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.cli.sql_shell.shells import answers, run_file
from tests.server.gateway.rig import LOCAL

from penstock.base.configuration import Configuration
from penstock.base.errors import OperationError
from penstock.cli.client.rest_client import Address
from penstock.cli.gateway.engine import Gateway
from penstock.cli.main import main
from penstock.cli.sql_shell import remote
from penstock.cli.sql_shell.prompt import SqlCompleter
from penstock.cli.sql_shell.remote import GatewayShell, connect
from penstock.cli.sql_shell.statements import split
from penstock.server.attachment import dispatcher

TOKEN = "a-token-of-the-shell"
TABLES = """CREATE TABLE endless (a BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '100');
CREATE TABLE few (a BIGINT, t TIMESTAMP(3)) WITH (
    'connector' = 'datagen', 'fields.a.kind' = 'sequence', 'fields.a.start' = '1', 'fields.a.end' = '3');
CREATE TABLE sink (a BIGINT) WITH ('connector' = 'blackhole');
"""


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """A gateway that knows the jobs of this process."""
    with Gateway(Configuration.from_dict(LOCAL), dispatcher()) as running:
        yield running


@pytest.fixture
def shell(gateway: Gateway) -> Iterator[GatewayShell]:
    """A shell with a session of its own."""
    shell = GatewayShell(connect(Address(gateway.server.url), {}, None))
    yield shell
    shell.close()


def run_at(gateway: Gateway, folder: Path, script: str, *arguments: str) -> Result:
    """Run the command on a file at a gateway."""
    path = folder / "script.sql"
    path.write_text(script)
    return CliRunner().invoke(main, ["sql", "-f", str(path), "--gateway", gateway.server.url, *arguments])


def shown(shell: GatewayShell, script: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What statements print."""
    capsys.readouterr()
    for statement in split(script):
        assert shell.run(statement)
    return capsys.readouterr().out


def test_a_file_runs_at_a_gateway(gateway: Gateway, tmp_path: Path) -> None:
    """It prints what the same file prints without one."""
    script = f"""{TABLES}
        SELECT a, SUM(a) OVER (ORDER BY t) >= a AS c FROM (SELECT a, PROCTIME() AS t FROM few) WHERE a > 1;
        SELECT 1 AS n, CAST(1.5 AS DECIMAL(4, 2)) AS d, TRUE AS b, CAST(NULL AS STRING) AS s, 'é' AS e,
            ARRAY[1, 2] AS x, MAP['k', 1.5e0] AS m, DATE '2024-01-02' AS day_, ROW(1, 'a') AS r,
            TIMESTAMP '2024-01-02 03:04:05.678' AS ts;
        SET 'sql-client.execution.result-mode' = 'TABLE';
        SELECT COUNT(*) AS counted FROM few;
        SHOW TABLES; DESCRIBE few; SHOW CREATE TABLE sink; EXPLAIN SELECT a FROM few;
        SET 'execution.runtime-mode' = 'streaming'; RESET 'execution.runtime-mode'; USE CATALOG default_catalog;
        """
    here, there = run_file(tmp_path, script), run_at(gateway, tmp_path, script)
    assert there.exit_code == 0, there.stderr
    assert answers(there) == answers(here)
    assert len(gateway.sessions) == 0


def test_jobs_stay_at_the_gateway(gateway: Gateway, tmp_path: Path) -> None:
    """A file ends without waiting for them, unless told to."""
    sync = "SET 'table.dml-sync' = 'true'; INSERT INTO sink SELECT a FROM few;"
    result = run_at(gateway, tmp_path, f"{TABLES} INSERT INTO sink SELECT a FROM endless; {sync} SHOW JOBS;")
    assert result.exit_code == 0, result.stderr
    *_, endless, _, waited, jobs = answers(result)
    job_id = re.findall(r"submitted to the cluster:\nJob ID: ([0-9a-f]{32})$", endless)[0]
    assert waited.endswith("[INFO] Complete execution of the SQL update statement.")
    assert re.search(rf"{job_id} \| +insert-into_default_catalog.default_database.sink \| +RUNNING", jobs)
    result = run_at(gateway, tmp_path, f"EXPLAIN ANALYZE JOB '{job_id}'; STOP JOB '{job_id}'; DESCRIBE JOB '{job_id}';")
    analyzed, stopped, described = answers(result)
    assert "is RUNNING" in analyzed
    assert "Sink sink" in analyzed
    assert stopped == "[INFO] Execute statement succeeded."
    assert "CANCEL" in described


def test_errors_are_the_gateways(gateway: Gateway, tmp_path: Path) -> None:
    """The file ends at the first one, with its class."""
    result = run_at(gateway, tmp_path, "SHOW TABLES;\nSELECT * FROM nowhere; SHOW TABLES;")
    assert result.exit_code == 1
    assert "line 2. Reason:\norg.apache.flink.table.api.ValidationException: " in result.stderr
    assert "nowhere" in result.stderr
    assert result.stdout.count("Penstock SQL>") == 2
    result = run_at(gateway, tmp_path, "SELECT CAST(x AS INT) FROM (VALUES ('one')) AS t (x);")
    assert result.exit_code == 1
    assert "'one'" in result.stderr
    result = run_at(gateway, tmp_path, "SET 'sql-client.nothing' = '1';")
    assert "There is no option 'sql-client.nothing'" in result.stderr
    arguments = ["sql", "--gateway", "localhost:1"]
    result = CliRunner().invoke(main, arguments, input="SHOW TABLES;")
    assert "nothing answers at http://localhost:1" in str(result.exception) + result.stderr
    assert "penstock gateway" in str(result.exception) + result.stderr
    assert CliRunner().invoke(main, ["sql", "--token", "x"]).exit_code == 2


def test_init_files_and_options_are_of_the_session(gateway: Gateway, tmp_path: Path) -> None:
    """Those of the connection are not sent."""
    init = tmp_path / "init.sql"
    init.write_text("CREATE TABLE prepared (a INT) WITH ('connector' = 'blackhole');")
    more = ("-i", str(init), "-D", "table.display.max-column-width=7", "-D", "penstock.rest.token=unused")
    result = run_at(gateway, tmp_path, "SHOW TABLES; SET; SELECT '123456789' AS x;", *more)
    tables, options, row = answers(result)
    assert "prepared |" in tables
    assert "table.display.max-column-width" in options
    assert "penstock.rest.token" not in options
    assert "1234..." in row


def test_ctrl_c_ends_a_query_with_its_job(
    shell: GatewayShell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frame around the rows is completed; the session goes on."""
    shown(shell, TABLES, capsys)
    pages = remote._Operation.pages

    def interrupted(operation: Any, address: str | None) -> Iterator[dict[str, Any]]:
        for number, page in enumerate(pages(operation, address)):
            if number and page["results"]["data"]:
                raise KeyboardInterrupt
            yield page

    monkeypatch.setattr(remote._Operation, "pages", interrupted)
    assert not shell.run(split("SELECT a FROM endless")[0])
    assert capsys.readouterr().out.endswith("[INFO] The query is cancelled.\n")
    monkeypatch.undo()
    newest = dispatcher().jobs()[-1]
    assert newest.handle.get_job_execution_result().exception(60) is not None
    assert "default_catalog" in shown(shell, "SHOW CATALOGS", capsys)


def test_ctrl_c_cancels_a_statement_that_has_no_result_yet(
    shell: GatewayShell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown(shell, f"{TABLES} SET 'table.dml-sync' = 'true'", capsys)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    # Only the clock of the module: other threads of the process sleep, too.
    monkeypatch.setattr(remote, "time", SimpleNamespace(sleep=interrupt, monotonic=time.monotonic))
    assert not shell.run(split("INSERT INTO sink SELECT a FROM endless")[0])
    assert capsys.readouterr().out == "[INFO] The statement is cancelled.\n"
    monkeypatch.undo()
    newest = dispatcher().jobs()[-1]
    newest.handle.cancel().result()


def test_the_gateway_completes_words(shell: GatewayShell, capsys: pytest.CaptureFixture[str]) -> None:
    """By the names of its session."""
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    shown(shell, TABLES, capsys)
    completions = list(SqlCompleter(shell.complete).get_completions(Document("SELECT * FROM end"), CompleteEvent()))
    assert [(completion.text, completion.start_position) for completion in completions] == [("endless", -3)]
    shell.close()
    assert shell.complete("SELECT * FROM end", "") == []


def test_heartbeats_keep_the_session(
    gateway: Gateway, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the shell ends."""
    beaten = threading.Event()
    used = type(next(iter([gateway.sessions]))).find

    def find(sessions: Any, handle: str) -> Any:
        if threading.current_thread().name != "MainThread":
            beaten.set()
        return used(sessions, handle)

    monkeypatch.setattr(remote, "HEARTBEAT_SECONDS", 0.01)
    tables = connect(Address(gateway.server.url), {}, "named")
    monkeypatch.setattr(type(gateway.sessions), "find", find)
    assert beaten.wait(60)
    tables.close()
    tables.close()
    with pytest.raises(OperationError, match="does not exist"):
        tables.execute_sql("SHOW TABLES")


def test_a_gateway_with_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the command line or the environment."""
    settings = Configuration.from_dict({**LOCAL, "penstock.rest.token": TOKEN})
    with Gateway(settings, dispatcher()) as running:
        refused = run_at(running, tmp_path, "SHOW CATALOGS;")
        assert refused.exit_code == 1
        assert "PENSTOCK_REST_TOKEN" in str(refused.exception) + refused.stderr
        assert run_at(running, tmp_path, "SHOW CATALOGS;", "--token", TOKEN).exit_code == 0
        monkeypatch.setenv("PENSTOCK_REST_TOKEN", TOKEN)
        assert run_at(running, tmp_path, "SHOW CATALOGS;").exit_code == 0
