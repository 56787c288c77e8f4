"""Archives of ended jobs: what is in them, when they are written, and what a failure of the store costs (nothing)."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.drivers.spark.programs import wait_until
from tests.server.rest.rig import JOB, Client, Handle, a_view, build_graph
from tests.servers.s3 import S3Server

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, JobExecutionError
from penstock.base.job import JobExecutionResult, JobID, JobStatus
from penstock.base.secrets import HIDDEN
from penstock.common import WatermarkStrategy
from penstock.connectors.split_reader import NumberSequenceSource
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.drivers.running_job import RunningJob
from penstock.runtime.graph import ExecutionState
from penstock.server import attachment
from penstock.server.dispatcher import DispatchedJob
from penstock.server.history import archive
from penstock.server.history.archive import Directory, archive_at_end, render_archive
from penstock.server.rest.calls.context import RestContext, RestSettings
from penstock.server.rest.server import RestServer

#: Flink's history server shows no job whose entry in the overview has another field.
FIELDS_OF_FLINK = {
    *("jid", "name", "state", "tasks", "start-time", "end-time", "duration", "last-modification", "pending-operators"),
    *("jobType", "schedulerType"),
}
SECRET = "SENTINEL-of-the-archive"


@pytest.fixture
def live() -> Iterator[Client]:
    """The live server over all jobs of this process."""
    settings = Configuration.from_dict({"rest.port": "0"})
    context = RestContext(attachment.dispatcher(), settings)
    server = RestServer(context, RestSettings.of(settings))
    server.start()
    try:
        yield Client(server, context)
    finally:
        server.stop()


def environment(directory: Path, **more: str) -> StreamExecutionEnvironment:
    options = {
        "execution.target": "local",
        "parallelism.default": "2",
        "jobmanager.archive.fs.dir": str(directory / "archive"),
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "restart-strategy.type": "none",
        "db.password": SECRET,
    }
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}
    return StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options | given))


def numbers(env: StreamExecutionEnvironment, last: int) -> DataStream:
    return env.from_source(NumberSequenceSource(1, last), WatermarkStrategy.no_watermarks(), "numbers")


def refuse(number: int) -> int:
    if number == 7:
        raise ValueError(f"seven is refused, with the password {SECRET}")
    return number


def archived(directory: Path, job_id: str) -> dict[str, str]:
    path = directory / "archive" / job_id
    wait_until(path.exists, f"the archive {path}")
    return {entry["path"]: entry["json"] for entry in json.loads(path.read_bytes())["archive"]}


def finish(directory: Path, mode: str) -> RunningJob:
    env = environment(directory, execution__runtime_mode=mode, execution__checkpointing__interval="50 ms")
    numbers(env, 2_000).key_by(lambda n: n % 3).map(refuse_none).print()
    return _ended(env, f"{mode} finishes")


def fail(directory: Path, mode: str) -> RunningJob:
    env = environment(directory, execution__runtime_mode=mode)
    numbers(env, 100).map(refuse).print()
    return _ended(env, f"{mode} fails")


def cancel(directory: Path, mode: str) -> RunningJob:
    env = environment(directory, execution__runtime_mode=mode, execution__checkpointing__interval="50 ms")
    numbers(env, 10**9).map(slowly).print()
    job = env.execute_async(f"{mode} is cancelled")
    if mode == "STREAMING":
        wait_until(lambda: _completed(job), "a checkpoint")
    else:
        wait_until(lambda: job.status() is JobStatus.RUNNING, "that it runs")
    job.cancel()
    wait([job.get_job_execution_result()], 60)
    return job


def _completed(job: RunningJob) -> int:
    return job.get_view().result(10).checkpoints.completed


def _ended(env: StreamExecutionEnvironment, name: str) -> RunningJob:
    job = env.execute_async(name)
    wait([job.get_job_execution_result()], 60)
    return job


def refuse_none(number: int) -> int:
    return number


def slowly(number: int) -> int:
    time.sleep(0.0005)
    return number


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
@pytest.mark.parametrize(("end", "status"), [(finish, "FINISHED"), (fail, "FAILED"), (cancel, "CANCELED")])
def test_an_archive_has_what_the_live_server_answers_after_the_end(
    end: Callable[[Path, str], RunningJob], status: str, mode: str, tmp_path: Path, live: Client
) -> None:
    job = end(tmp_path, mode)
    job_id = str(job.get_job_id())
    answers = archived(tmp_path, job_id)
    listed = json.loads(answers.pop("/jobs/overview"))["jobs"]
    (entry,) = (entry for entry in live.get("/jobs/overview").json["jobs"] if entry["jid"] == job_id)
    assert listed == [{name: value for name, value in entry.items() if name in FIELDS_OF_FLINK}]
    assert entry.keys() - FIELDS_OF_FLINK == {"restarts", "last-failure"}
    assert [entry["state"] for entry in listed] == [status]
    for path, text in answers.items():
        answer = live.get(path)
        assert (answer.code, answer.body.decode()) == (200, text), path
    details = json.loads(answers[f"/jobs/{job_id}"])
    for vertex in details["vertices"]:
        for number in range(vertex["parallelism"]):
            assert f"/jobs/{job_id}/vertices/{vertex['id']}/subtasks/{number}/attempts/0" in answers
    if mode == "STREAMING" and status != "FAILED":
        counts = json.loads(answers[f"/jobs/{job_id}/checkpoints"])["counts"]
        assert status != "CANCELED" or counts["completed"]
    if status == "FAILED":
        assert "seven is refused" in answers[f"/jobs/{job_id}/exceptions"]


def test_secrets_are_hidden_in_an_archive(tmp_path: Path) -> None:
    job_id = str(fail(tmp_path, "STREAMING").get_job_id())
    answers = archived(tmp_path, job_id)
    assert SECRET not in json.dumps(answers)
    assert f"with the password {HIDDEN}" in answers[f"/jobs/{job_id}/exceptions"]
    assert json.loads(answers[f"/jobs/{job_id}/config"])["execution-config"]["user-config"]["db.password"] == HIDDEN


def dispatched(handle: Handle) -> DispatchedJob:
    assert handle.shown is not None
    return DispatchedJob(cast("RunningJob", handle), build_graph(handle.shown), Configuration())


def ended(status: JobStatus = JobStatus.FINISHED, parallelism: int = 2) -> Handle:
    handle = Handle(replace(a_view(parallelism), status=status))
    handle.outcome.set_result(JobExecutionResult(JobID(JOB), 1, {}))
    return handle


def test_an_archive_has_every_checkpoint_rescale_and_subtask_that_the_view_has() -> None:
    paths = {entry.path.removeprefix(f"/jobs/{JOB}") for entry in render_archive(dispatched(ended())).archive}
    for path in ("/checkpoints/details/1", f"/checkpoints/details/1/subtasks/{'a' * 32}", "/checkpoints/details/2"):
        assert path in paths
    assert sum(path.startswith("/rescales/details/") for path in paths) == 1
    assert f"/vertices/{'b' * 32}/subtasks/1/attempts/0/accumulators" in paths
    live_only = ("metrics", "flamegraph", "log-url", "backpressure")
    assert not [path for path in paths if path.rpartition("/")[2] in live_only]


def test_a_large_job_loses_the_most_detailed_answers(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("penstock").addHandler(caplog.handler)
    try:
        entries = render_archive(dispatched(ended(parallelism=400)), 200_000).archive
    finally:
        logging.getLogger("penstock").removeHandler(caplog.handler)
    assert sum(len(entry.path) + len(entry.json) for entry in entries) <= 200_000
    paths = {entry.path for entry in entries}
    assert {"/jobs/overview", f"/jobs/{JOB}", f"/jobs/{JOB}/config", f"/jobs/{JOB}/checkpoints"} <= paths
    assert f"/jobs/{JOB}/vertices/{'a' * 32}" not in paths
    assert "is limited to 200000 bytes: the first 101 of more of its answers" in caplog.text


def test_an_answer_that_fails_costs_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(call: Any) -> Any:
        raise ZeroDivisionError

    changed = [
        replace(route, handler=broken) if route.path.endswith("/plan") else route for route in archive.ARCHIVED_ROUTES
    ]
    monkeypatch.setattr(archive, "ARCHIVED_ROUTES", changed)
    paths = {entry.path for entry in render_archive(dispatched(ended())).archive}
    assert f"/jobs/{JOB}/plan" not in paths
    assert f"/jobs/{JOB}/config" in paths


def archive_now(handle: Handle, directory: str, caplog: pytest.LogCaptureFixture) -> str:
    """Archive an ended job; return what was logged."""
    logging.getLogger("penstock").addHandler(caplog.handler)
    before = set(threading.enumerate())
    try:
        archive_at_end(dispatched(handle), directory)
        for thread in set(threading.enumerate()) - before:
            if thread.name == "penstock-archive":
                thread.join(60)
    finally:
        logging.getLogger("penstock").removeHandler(caplog.handler)
    return caplog.text


def test_a_job_that_goes_on_elsewhere_is_not_archived(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A suspended job: another driver resumes it."""
    assert archive_now(ended(JobStatus.SUSPENDED), str(tmp_path), caplog) == ""
    assert not list(tmp_path.iterdir())


def test_a_store_that_refuses_costs_a_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("no directory")
    text = archive_now(ended(), str(tmp_path / "file"), caplog)
    assert f"job {JOB} is not archived in {tmp_path}/file (jobmanager.archive.fs.dir)" in text
    assert "its outcome is not affected" in text
    assert "Check that this process may write there" in text


def test_a_job_whose_archive_cannot_be_written_finishes(tmp_path: Path) -> None:
    (tmp_path / "archive").write_text("no directory")
    job = finish(tmp_path, "STREAMING")
    assert job.get_job_execution_result().result().get_net_runtime() >= 0


def test_a_store_that_hangs_delays_no_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr(archive, "write_named", lambda *_: released.wait(60))
    monkeypatch.setattr(archive, "ARCHIVE_SECONDS", 0.05)
    try:
        job = finish(tmp_path, "STREAMING")
        assert job.get_job_execution_result().done()
        assert "it has not answered for 0 s" in archive_now(ended(), str(tmp_path), caplog)
    finally:
        released.set()


@pytest.mark.parametrize(
    ("directory", "why"),
    [
        ("memory://archive", "is in the memory of this process"),
        ("nosuch://archive", "Protocol not known: nosuch"),
    ],
)
def test_a_directory_that_nobody_could_read_is_refused_before_the_job_begins(directory: str, why: str) -> None:
    env = environment(Path("/tmp"), jobmanager__archive__fs__dir=directory)
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match=f"^jobmanager.archive.fs.dir: .*{why}"):
        env.execute()


def test_a_failure_is_told_as_before(tmp_path: Path) -> None:
    env = environment(tmp_path)
    numbers(env, 100).map(refuse).print()
    with pytest.raises(JobExecutionError, match="seven is refused"):
        env.execute()


PROGRAM = """
import sys, time
from penstock.base.configuration import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.server.history import archive

write = archive.write_named
def act(*arguments):
    {action}
archive.write_named = act
options = {{"execution.target": "local", "jobmanager.archive.fs.dir": sys.argv[1]}}
env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
env.from_collection([1, 2, 3]).print()
print("job", env.execute("ends").get_job_id(), flush=True)
"""


def run(action: str, directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM.format(action=action), str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)


def test_a_program_that_ends_with_its_job_waits_for_the_archive(tmp_path: Path) -> None:
    done = run("time.sleep(0.5); write(*arguments)", tmp_path)
    assert done.returncode == 0, done.stderr
    job_id = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("job "))
    assert [path.name for path in tmp_path.iterdir()] == [job_id]


@pytest.mark.parametrize(
    "action",
    [
        "import os, signal; os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL); write(*arguments)",
        "import os, signal; os.fsync = lambda *_: os.kill(os.getpid(), signal.SIGKILL); write(*arguments)",
    ],
)
def test_a_process_that_is_killed_while_it_writes_leaves_no_half_archive(action: str, tmp_path: Path) -> None:
    done = run(action, tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert Directory(str(tmp_path)).listing() == []
    assert [path.suffix for path in tmp_path.iterdir()] == [".part"]


def test_an_archive_goes_to_an_object_store(
    s3: S3Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    url = f"{s3.new_bucket()}/archive"
    archive_now(ended(), url, caplog)
    (listed,) = Directory(url).listing()
    (file,) = listed.files.values()
    assert (listed.kind, listed.archive_id) == ("job", JOB)
    assert abs(listed.modified_ms - time.time() * 1000) < 3_600_000
    assert json.loads(Directory(url).read(file))["archive"][0]["path"] == "/jobs/overview"


SPARK = """
import sys, time
from penstock.base.configuration import Configuration
from penstock.common import WatermarkStrategy
from penstock.connectors.split_reader import NumberSequenceSource
from penstock.datastream import StreamExecutionEnvironment

options = {"parallelism.default": "1", "jobmanager.archive.fs.dir": sys.argv[1], "spark.master": "local[2]"}
env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
source = env.from_source(NumberSequenceSource(1, int(sys.argv[2])), WatermarkStrategy.no_watermarks(), "n")
source.map(lambda n: time.sleep(0.001) or n).print("n")
job = env.execute_async("killed")
while job.get_job_status().result().name != "RUNNING":
    time.sleep(0.05)
print("runs", job.get_job_id(), flush=True)
job.get_job_execution_result().result()
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_driver_on_spark_leaves_a_whole_archive_or_none(is_killed: bool, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SPARK, str(tmp_path), str(10**9 if is_killed else 100)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        job_id = next(line.split()[1] for line in process.stdout if line.startswith("runs "))
        if is_killed:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=150)
    listed = [(archive.kind, archive.archive_id) for archive in Directory(str(tmp_path)).listing()]
    assert listed == ([] if is_killed else [("job", job_id)])


def test_the_view_of_the_rig_has_ended_tasks_too() -> None:
    """A guard of these tests: the archive follows the view, not the status that the handle has at the moment."""
    view = a_view()
    assert {subtask.state for vertex in view.vertices for subtask in vertex.subtasks} == {ExecutionState.RUNNING}
