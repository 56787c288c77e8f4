"""What `JobClient` offers of savepoints, asked of real jobs on real Spark tasks."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from tests.drivers.spark.programs import (
    KEYS,
    PATIENCE_S,
    CollectingListener,
    counting_job,
    expected_counts,
    wait_for_checkpoint,
    wait_until,
)
from tests.stores import at

from penstock.base.configuration import Configuration
from penstock.base.errors import CheckpointError, JobExecutionError
from penstock.base.job import JobStatus
from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.job import SparkJobClient, submit
from penstock.storage.metadata import METADATA_NAME

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: So many that no job comes to its end before it is asked; those that go on from a savepoint are not paced.
COUNT = 30_000
PER_SECOND = 1_000

Ask = Callable[[SparkJobClient, str | None], Future[str]]

REQUESTS: dict[str, Ask] = {
    "trigger": lambda client, directory: client.trigger_savepoint(directory),
    "cancel": lambda client, directory: client.cancel_with_savepoint(directory),
    "stop": lambda client, directory: client.stop_with_savepoint(False, directory),
    "drain": lambda client, directory: client.stop_with_savepoint(True, directory),
}


def settings(others: dict[str, str] | None = None, checkpointing: bool = True) -> Configuration:
    """Checkpoints go to the job master, unless told otherwise."""
    given = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "50 ms",
    }
    if checkpointing:
        given["execution.checkpointing.interval"] = "200 ms"
    return Configuration.from_dict({**given, **(others or {})})


def start(
    configuration: Configuration, count: int | None = COUNT, per_second: float | None = PER_SECOND
) -> tuple[SparkJobClient, CollectingListener]:
    listener = CollectingListener()
    return submit(counting_job(count, per_second, 2), configuration, listener), listener


def resume(path: str) -> dict[int, list[int]]:
    """The counts that a job gives that goes on from a savepoint, to the end."""
    client, listener = start(settings({"execution.state-recovery.path": path}), per_second=None)
    client.wait()
    return listener.counts


def cancel(client: SparkJobClient, directory: Path | None) -> str:
    """Cancel with a savepoint."""
    path = client.cancel_with_savepoint(None if directory is None else str(directory)).result(PATIENCE_S)
    with pytest.raises(JobExecutionError, match="it was cancelled"):
        client.get_job_execution_result().result(PATIENCE_S)
    assert client.get_job_status().result() is JobStatus.CANCELED
    return path


def joined(one: dict[int, list[int]], other: dict[int, list[int]]) -> dict[int, list[int]]:
    """What two jobs gave, one after the other."""
    return {key: one[key] + other[key] for key in range(KEYS)}


def check_nothing_left(spark: SparkHandle, workers: tuple[tuple[str, str, int], ...]) -> None:
    """No Spark job, no thread of ours here, and no socket in the processes, which Spark keeps for what comes next."""
    tracker = spark.session.sparkContext.statusTracker()
    wait_until(lambda: not tracker.getActiveJobsIds(), "the end of Spark's jobs")
    wait_until(lambda: not tracker.getActiveStageIds(), "the end of Spark's tasks")
    ours = [thread.name for thread in threading.enumerate() if thread.name.startswith(("penstock-w", "penstock-j"))]
    assert ours == []
    for _, _, process_id in workers:
        wait_until(lambda: "ZMQ" not in thread_names(process_id), "the end of the sockets")  # noqa: B023


def thread_names(process_id: int) -> str:
    return " ".join(path.read_text() for path in Path(f"/proc/{process_id}/task").glob("*/comm"))


def test_a_savepoint_of_a_job_that_goes_on(spark: SparkHandle, store_directory: Path) -> None:
    """H1: it stays when the job has ended, another one is another directory, and the job's own output is untouched."""
    client, listener = start(settings())
    wait_for_checkpoint(client, 1)
    one, other = (client.trigger_savepoint(str(store_directory)).result(PATIENCE_S) for _ in range(2))
    last = cancel(client, store_directory)
    assert sorted(store_directory.iterdir()) == sorted(at(path) for path in {one, other, last})
    assert len({one, other, last}) == 3
    assert joined(listener.counts, resume(last)) == expected_counts(COUNT)
    again = resume(one)
    assert again == {key: counts[-len(again[key]) :] for key, counts in expected_counts(COUNT).items()}


def test_cancel_with_savepoint_leaves_the_rest_to_the_job_that_goes_on(
    spark: SparkHandle, store_directory: Path
) -> None:
    """H2: what the cancelled job committed and what the next one commits is everything, each record once."""
    client, listener = start(settings())
    wait_for_checkpoint(client, 2)
    workers = client.get_progress().result(PATIENCE_S).workers
    path = cancel(client, store_directory)
    check_nothing_left(spark, workers)
    assert joined(listener.counts, resume(path)) == expected_counts(COUNT)


@pytest.mark.parametrize("drain", [False, True])
def test_stop_with_savepoint_ends_the_job_and_leaves_nothing(
    spark: SparkHandle, store_directory: Path, drain: bool
) -> None:
    """H2: when the future is done the job has finished; then nothing of it is left on Spark, and no record missing."""
    client, listener = start(settings(), count=None)
    wait_for_checkpoint(client, 1)
    workers = client.get_progress().result(PATIENCE_S).workers
    path = client.stop_with_savepoint(drain, str(store_directory)).result(PATIENCE_S)
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert client.wait().get_job_id() == client.get_job_id()
    check_nothing_left(spark, workers)
    assert (at(path) / METADATA_NAME).is_file()
    assert listener.counts
    assert listener.counts == {key: list(range(1, len(counts) + 1)) for key, counts in listener.counts.items()}


@pytest.mark.parametrize("drain", [False, True])
def test_without_checkpoints_savepoints_hold_up_no_output(
    spark: SparkHandle, store_directory: Path, drain: bool
) -> None:
    """H1, H2: with checkpointing off, what a savepoint had sinks prepare is committed at the end."""
    client, listener = start(settings(checkpointing=False), count=None)
    for number in (1, 2):
        wait_until(lambda: client.get_progress().result(PATIENCE_S).source_records >= 200 * number, "records")  # noqa: B023
        client.trigger_savepoint(str(store_directory)).result(PATIENCE_S)
    client.stop_with_savepoint(drain, str(store_directory)).result(PATIENCE_S)
    client.wait()
    assert len(list(store_directory.iterdir())) == 3
    assert sum(map(len, listener.counts.values())) >= 400
    assert listener.counts == {key: list(range(1, len(counts) + 1)) for key, counts in listener.counts.items()}


def test_directories_relative_to_the_program_mean_the_same_to_workers(
    spark: SparkHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G11, H1, H4: workers have another working directory; all files are where the program means them to be.

    A job that goes on from the savepoint finds it where it has been moved to.
    """
    monkeypatch.chdir(tmp_path)  # Spark, and with it the workers, began elsewhere
    directories = {
        "execution.checkpointing.dir": "checkpoints",
        "execution.checkpointing.savepoint-dir": "savepoints",
        "execution.checkpointing.data-inline-threshold": "0 b",
    }
    client, listener = start(settings(directories))
    wait_for_checkpoint(client, 2)
    assert list(Path("checkpoints").glob(f"*/chk-*/{METADATA_NAME}"))
    path = cancel(client, None)
    assert Path(path).parent == tmp_path / "savepoints"
    assert len(list(Path(path).iterdir())) > 1
    Path(path).rename("moved")
    assert joined(listener.counts, resume("moved")) == expected_counts(COUNT)


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_without_a_directory_there_is_no_savepoint_and_the_job_goes_on(spark: SparkHandle, request_: Ask) -> None:
    client, listener = start(settings(), per_second=None)
    with pytest.raises(CheckpointError, match=r"name a directory for the savepoint, or set .*savepoint-dir"):
        request_(client, None).result(PATIENCE_S)
    client.wait()
    assert listener.counts == expected_counts(COUNT)


def test_a_job_that_is_over_takes_no_savepoint(spark: SparkHandle, store_directory: Path) -> None:
    client, _ = start(settings(), per_second=None)
    client.wait()
    for request in REQUESTS.values():
        with pytest.raises(CheckpointError, match=f"no savepoint under {store_directory}: the job is over"):
            request(client, str(store_directory)).result(PATIENCE_S)
    assert not list(store_directory.glob("*"))


def test_a_job_that_is_being_stopped_takes_no_other_savepoint(spark: SparkHandle, store_directory: Path) -> None:
    client, _ = start(settings(), count=None)
    first, second = (client.stop_with_savepoint(False, str(store_directory)) for _ in range(2))
    with pytest.raises(CheckpointError, match=r"already being stopped with a savepoint|the job is (FINISHED|over)"):
        second.result(PATIENCE_S)
    path = first.result(PATIENCE_S)
    client.wait()
    assert list(store_directory.iterdir()) == [at(path)]


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_a_savepoint_that_cannot_be_written_leaves_the_job_running(
    spark: SparkHandle, tmp_path: Path, request_: Ask
) -> None:
    """H2: whoever asked is told why, the job goes on (after a restart, if it was to stop), and its output is exact."""
    file = tmp_path / "file"
    file.touch()
    client, listener = start(settings())
    wait_for_checkpoint(client, 1)
    with pytest.raises(CheckpointError, match=f"no savepoint under {file}: .*(Not a directory|File exists)"):
        request_(client, str(file)).result(PATIENCE_S)
    path = cancel(client, tmp_path / "savepoints")
    assert joined(listener.counts, resume(path)) == expected_counts(COUNT)
    assert ("RESTARTING" in listener.statuses) is (request_ in (REQUESTS["stop"], REQUESTS["drain"]))
    assert file.is_file()
