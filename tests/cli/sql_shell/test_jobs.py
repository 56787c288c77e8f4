"""Jobs that statements start: their ids, the wait for them, and how they are stopped."""

import re
from pathlib import Path

import pytest
from tests.cli.sql_shell.shells import answers, run_file, shell_of

from penstock.cli.sql_shell.shell import Shell
from penstock.cli.sql_shell.statements import split
from penstock.drivers.running_job import RunningJob
from penstock.sql.data.errors import ValidationError

TABLES = """CREATE TABLE endless (a BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '50');
CREATE TABLE few (a BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '3');
CREATE TABLE sink (a BIGINT) WITH ('connector' = 'blackhole');
"""


def shown(shell: Shell, script: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What statements print."""
    capsys.readouterr()
    for statement in split(script):
        shell.run(statement)
    return capsys.readouterr().out


def cells(text: str, row: int = 0) -> list[str]:
    """The values of a row of a table with borders."""
    return [cell.strip() for cell in text.split("\n")[3 + row].split("|")[1:-1]]


def test_an_insert_names_its_job_and_a_file_waits_for_it(tmp_path: Path) -> None:
    result = run_file(tmp_path, f"{TABLES} INSERT INTO sink SELECT * FROM few;")
    assert re.search(r"submitted to the cluster:\nJob ID: [0-9a-f]{32}$", answers(result)[-1])
    assert result.exit_code == 0


def test_dml_sync_waits_for_the_end_of_each_job(tmp_path: Path) -> None:
    sync = "SET 'table.dml-sync' = 'true';"
    result = run_file(tmp_path, f"{TABLES} {sync} INSERT INTO sink SELECT * FROM few; SHOW JOBS; SET;")
    *_, inserted, jobs, options = answers(result)
    assert inserted.endswith("[INFO] Complete execution of the SQL update statement.")
    assert cells(jobs)[1:3] == ["insert-into_default_catalog.default_database.sink", "FINISHED"]
    assert ["table.dml-sync", "true"] in [cells(options, row) for row in range(2)]


@pytest.mark.parametrize("setting", ["", "SET 'table.dml-sync' = 'true';"])
def test_a_job_that_fails_ends_the_file_with_1(tmp_path: Path, setting: str) -> None:
    failing = "INSERT INTO sink SELECT CAST(x AS BIGINT) FROM (VALUES ('one')) AS t (x);"
    result = run_file(tmp_path, f"{TABLES} {setting} {failing}")
    assert result.exit_code == 1
    assert "[ERROR]" in result.stderr
    assert "'one'" in result.stderr


def test_a_set_of_statements_is_one_job(tmp_path: Path) -> None:
    insert = "INSERT INTO sink SELECT * FROM few;"
    for script in (
        f"EXECUTE STATEMENT SET BEGIN {insert} {insert} END;",
        f"BEGIN STATEMENT SET; {insert} {insert} END;",
    ):
        result = run_file(tmp_path, f"{TABLES} {script} SHOW JOBS;")
        assert result.exit_code == 0
        assert answers(result)[-1].endswith("\n1 row in set")
        assert result.stdout.count("Job ID") == 1


def test_a_set_that_does_not_end_is_an_error(tmp_path: Path) -> None:
    result = run_file(tmp_path, f"{TABLES} BEGIN STATEMENT SET; INSERT INTO sink SELECT * FROM few;")
    assert result.exit_code == 1
    assert "BEGIN STATEMENT SET has no END" in result.stderr


def test_a_job_is_stopped_with_a_savepoint_and_another_goes_on_from_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = shell_of(f"SET 'execution.checkpointing.savepoint-dir' = '{tmp_path}'; {TABLES}")
    shell.run(split("INSERT INTO sink SELECT a FROM endless")[0])
    (job,) = shell.jobs.running()
    assert cells(shown(shell, f"DESCRIBE JOB '{job.id}'", capsys))[0] == job.id
    out = shown(shell, f"STOP JOB '{job.id}' WITH SAVEPOINT", capsys)
    (path,) = cells(out)
    assert "savepoint path" in out
    assert job.status == "FINISHED"
    assert shell.jobs.running() == []
    # The older key of the option means the same.
    for key in ("execution.savepoint.path", "execution.state-recovery.path"):
        shown(shell, f"RESET; SET 'execution.target' = 'local'; SET '{key}' = '{path}'", capsys)
        assert path in shown(shell, "SET", capsys)
        shell.run(split("INSERT INTO sink SELECT a FROM endless")[0])
        (again,) = shell.jobs.running()
        assert isinstance(again.client, RunningJob)
        again.client.get_view().result()  # it began, from what the savepoint holds
        assert "succeeded" in shown(shell, f"STOP JOB '{again.id}'", capsys)
        shell.jobs.cancel_all()


def test_a_savepoint_that_is_not_there_fails_the_job(tmp_path: Path) -> None:
    script = f"SET 'execution.savepoint.path' = '{tmp_path}/none'; {TABLES} INSERT INTO sink SELECT a FROM endless;"
    result = run_file(tmp_path, script)
    assert result.exit_code == 1
    assert f"{tmp_path}/none" in result.stderr


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("STOP JOB 'none'", "has not started a job 'none'"),
        ("DESCRIBE JOB 'none'", "has not started a job 'none'"),
    ],
)
def test_what_cannot_be_done_with_a_job_is_refused(statement: str, reason: str) -> None:
    shell = shell_of(f"{TABLES} INSERT INTO sink SELECT a FROM endless;")
    (job,) = shell.jobs.running()
    with pytest.raises(ValidationError, match=reason):
        shell.run(split(statement.format(id=job.id))[0])
    assert shell.jobs.running() == [job]
    shell.jobs.cancel_all()
    assert shell.jobs.running() == []


def test_quit_at_a_terminal_warns_once_of_jobs_that_run(capsys: pytest.CaptureFixture[str]) -> None:
    shell = shell_of(f"{TABLES} INSERT INTO sink SELECT a FROM endless;", is_terminal=True)
    (job,) = shell.jobs.running()
    assert f"end with this shell: {job.id}" in shown(shell, "QUIT", capsys)
    assert not shell.is_over
    assert shown(shell, "EXIT", capsys) == ""
    assert shell.is_over
    shell.jobs.cancel_all()
