"""What a job logs and prints: where it goes, how much of it is kept, and what is never in it."""

from __future__ import annotations

import contextvars
import json
import logging
import sys
from pathlib import Path

import pytest
from tests.datastream.environments import local_environment

from penstock.base.configuration import Configuration
from penstock.base.secrets import HIDDEN
from penstock.drivers.inspection import AskLog, FileText, LogFiles, Refused
from penstock.drivers.logs import (
    KEPT_CHARS_MAX,
    LOGS_PREFIX,
    TASKS_LOGGER,
    DriverLog,
    LogSettings,
    OutputFile,
    kept_logs,
    log_to_stderr_by_default,
    set_thread_job,
)
from penstock.drivers.running_job import RunningJob

MINE = logging.getLogger("mine")
PENSTOCK = logging.getLogger("penstock.job")


def settings(**options: object) -> LogSettings:
    return LogSettings.of(Configuration.from_dict({f"penstock.logs.{k}": v for k, v in options.items()}), "job-1")


def text(answer: object) -> str:
    assert isinstance(answer, FileText)
    return answer.data.decode()


# --- workers ---------------------------------------------------------------------------------------------------------


def test_a_workers_lines_and_output_are_files_in_the_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed still comes where it came before; what was set up before comes back."""
    stdout, root = sys.stdout, logging.getLogger()
    handlers, level = list(root.handlers), root.level
    with kept_logs(settings(dir=str(tmp_path)), "w1") as logs:
        assert logs is not None
        MINE.info("one line")
        MINE.debug("not this one")
        print("printed")
        print("to stderr", file=sys.stderr)
        assert text(logs.output()) == "printed\nto stderr\n"
        assert text(logs.read("")).endswith("INFO  mine [MainThread] - one line\n")
        assert text(logs.read("")) == text(logs.read("w1.log"))
    assert (sys.stdout, root.handlers, root.level) == (stdout, handlers, level)
    assert {path.name for path in (tmp_path / "job-1").iterdir()} == {"w1.log", "w1.out"}
    assert (tmp_path / "job-1" / "w1.out").read_text() == "printed\nto stderr\n"
    assert capsys.readouterr().out == "printed\n"


def test_warnings_on_stderr_show_no_secret_and_failures_of_tasks_are_the_drivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """S11: Spark shows a worker's stderr, on one machine as the driver's own, which has the failures already."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with kept_logs(LogSettings("job-1", str(tmp_path), secrets=("SENTINEL-pw",)), "w1") as logs:
        assert logs is not None
        MINE.warning("cannot log in with SENTINEL-pw")
        logging.getLogger(TASKS_LOGGER).warning("task 'Map (1/1)', attempt 0: FAILED: SENTINEL-pw")
        kept = text(logs.read(""))
    assert capsys.readouterr().err == f"cannot log in with {HIDDEN}\n"
    assert f"task 'Map (1/1)', attempt 0: FAILED: {HIDDEN}\n" in kept


def test_without_a_directory_files_go_with_their_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with kept_logs(settings(), "w1"):
        assert [path.name.startswith(f"{LOGS_PREFIX}job-1-") for path in tmp_path.iterdir()] == [True]
    assert list(tmp_path.iterdir()) == []


def test_files_are_bounded_and_the_newest_lines_are_kept(tmp_path: Path) -> None:
    bounds = {"dir": str(tmp_path), "max-file-size": "1000", "max-files": "3"}
    with kept_logs(settings(**bounds), "w1") as logs:
        assert logs is not None
        for number in range(200):
            MINE.info("line %d", number)
        listed = logs.list()
        assert isinstance(listed, LogFiles)
        assert [file.name for file in listed.files] == ["w1.log", "w1.log.1", "w1.log.2"]
        assert all(file.size <= 1_000 for file in listed.files)
        assert text(logs.read("w1.log")).endswith("line 199\n")


@pytest.mark.parametrize("name", ["../w1.log", "w1.out", "/etc/passwd", "w2.log", ".lock"])
def test_nothing_but_its_own_log_files_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "w1.log").touch()
    with kept_logs(settings(dir=str(tmp_path)), "w1") as logs:
        assert logs is not None
        assert isinstance(refused := logs.read(name), Refused)
        assert refused.is_unknown


def test_output_is_bounded_and_the_newest_is_kept(tmp_path: Path) -> None:
    output = OutputFile(tmp_path / "w1.out", 1_000)
    for number in range(1_000):
        output.write(f"line {number}\n")
    kept = output.read().decode()
    output.write("x" * 5_000)
    assert kept.endswith("line 998\nline 999\n")
    assert 500 <= len(kept) <= 1_000
    assert len(output.read()) <= 1_000
    output.close()
    output.write("after the end")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1_000


def test_a_worker_that_can_keep_no_files_works_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "file"
    file.touch()
    with kept_logs(settings(dir=str(file)), "w1") as logs:
        assert logs is None
    assert "worker w1 keeps no log files" in caplog.text


def test_secrets_of_the_options_are_hidden(tmp_path: Path) -> None:
    """In lines of both forms, in tracebacks, and in output that somebody asks for."""
    for form in ("text", "json"):
        options = {"s3.secret-key": "hunter2", "penstock.logs.dir": str(tmp_path), "penstock.logs.format": form}
        configuration = Configuration.from_dict(options)
        with kept_logs(LogSettings.of(configuration, form), "w1") as logs:
            assert logs is not None
            print("hunter2")
            try:
                raise ValueError("hunter2")
            except ValueError:
                MINE.exception("with %s", "hunter2")
            assert "hunter2" not in text(logs.read(""))
            assert text(logs.read("")).count("******") == 3
            assert text(logs.output()) == "******\n"


def test_lines_are_json_on_request(tmp_path: Path) -> None:
    with kept_logs(settings(dir=str(tmp_path), format="json"), "w1") as logs:
        assert logs is not None
        MINE.warning("two\nlines")
        (line,) = text(logs.read("")).splitlines()
    fields = json.loads(line)
    assert fields.pop("time").endswith("Z")
    assert fields == {
        "level": "WARNING",
        "logger": "mine",
        "thread": "MainThread",
        "job": "job-1",
        "process": "w1",
        "message": "two\nlines",
    }


# --- the driver ------------------------------------------------------------------------------------------------------


@pytest.fixture
def driver_log() -> DriverLog:
    return DriverLog(settings())


def test_the_drivers_log_has_the_lines_of_its_job_and_of_no_job(driver_log: DriverLog) -> None:
    def say(job_id: str | None) -> None:
        if job_id is not None:
            set_thread_job(job_id)
        PENSTOCK.warning("of %s", job_id)

    for job_id in ("job-1", "job-2", None):
        contextvars.Context().run(say, job_id)
    driver_log.close()
    PENSTOCK.warning("after its end")
    lines = [line.rpartition(" - ")[2] for line in text(driver_log.read("driver.log")).splitlines()]
    assert lines == ["of job-1", "of None"]
    assert isinstance(driver_log.read("other"), Refused)


def test_the_drivers_log_is_bounded(driver_log: DriverLog) -> None:
    def say() -> None:
        for _ in range(30):
            PENSTOCK.warning("x" * 60_000)

    contextvars.Context().run(say)
    driver_log.close()
    listed = driver_log.list()
    assert isinstance(listed, LogFiles)
    assert KEPT_CHARS_MAX - 100_000 < listed.files[0].size <= KEPT_CHARS_MAX


def test_a_job_that_keeps_its_log_shows_it_to_people_all_the_same(
    driver_log: DriverLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handlers that keep lines are no reason not to show them."""
    logger = logging.getLogger("penstock")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logger, "handlers", [h for h in logger.handlers if (h.name or "").startswith("penstock-")])
    monkeypatch.setattr(logger, "propagate", True)
    before = list(logger.handlers)
    log_to_stderr_by_default()
    assert len(logger.handlers) == len(before) + 1
    driver_log.close()


def test_a_job_has_its_log_when_it_is_over(tmp_path: Path) -> None:
    env = local_environment(penstock__logs__dir=tmp_path)
    env.from_collection([1]).print()
    logging.getLogger("penstock").setLevel(logging.INFO)
    job = env.execute_async("logged")
    assert isinstance(job, RunningJob)
    job.get_job_execution_result().result(60)
    kept = text(job.ask_driver(AskLog()).result(60))
    assert "logged: running" in kept
    assert "logged: finished" in kept
    assert (tmp_path / str(job.get_job_id()) / "driver.log").read_text() == kept
