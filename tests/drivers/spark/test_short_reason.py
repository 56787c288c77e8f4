import sys

import pytest

from penstock.drivers.spark.handle import PROCESS_DIED, PYTHON_REMEDY, local_slots, package_archive, short_reason

STAGE = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in stage"
)
CALL = "An error occurred while calling o103.collectToPython.\n: org.apache.spark.SparkException: "


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"{CALL}{STAGE} 3.0 (TID 3) (host executor driver): org.apache.spark.SparkException: "
            "Python worker exited unexpectedly (crashed). Consider\n\tat org.apache.x(X.scala:1)",
            PROCESS_DIED,
        ),
        (
            f"{CALL}[SPARK_JOB_CANCELLED] Job 4 cancelled as part of cancellation of all jobs\n\tat x",
            "its Spark job was cancelled",
        ),
        (
            f"{CALL}{STAGE} 3.0 (TID 3) (10.0.0.7 executor 2): ExecutorLostFailure (executor 2 exited caused by one of "
            "the running tasks) Reason: Command exited with code 137\nDriver stacktrace:",
            "its Spark executor 2 was lost: Command exited with code 137",
        ),
        (
            f"{CALL}{STAGE} 3.0 (TID 3) (h executor 1): org.apache.spark.api.python.PythonException: "
            "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'pyarrow'\n\tat y",
            "ModuleNotFoundError: No module named 'pyarrow'",
        ),
        (
            f"{CALL}{STAGE} 3.0 (TID 3) (h executor 1): java.lang.OutOfMemoryError: Java heap space\n\tat z",
            "Java heap space",
        ),
        (
            "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File x\n"
            "pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
            "version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.",
            f"the workers run Python 3.12, and this program Python 3.11: {PYTHON_REMEDY}, to a Python 3.11 with the "
            f"same packages, such as {sys.executable} where workers have it",
        ),
        (
            f"{CALL}{STAGE} 0.0 (TID 0) (h executor driver): org.apache.spark.SparkException: \n"
            "Error from python worker:\n  /usr/bin/python3: No module named pyspark\nPYTHONPATH was:\n  /x\n\tat y",
            f"the workers' Python does not start: /usr/bin/python3: No module named pyspark: {PYTHON_REMEDY}",
        ),
        (
            f'{CALL}{STAGE} 0.0 (TID 0) (h executor driver): java.io.IOException: Cannot run program "/no/python": '
            "error=2, No such file or directory\n\tat x",
            f"the workers' Python, /no/python, cannot be run: {PYTHON_REMEDY}",
        ),
        ("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n\tat", "Spark was stopped"),
        (
            f"{CALL}org.apache.spark.SparkException: Writing job failed.\n\tat x\nCaused by: org.y.DataException: it "
            "went wrong\n\tat y\nCaused by: com.z.SocketException: the end of the stream\n\tat z",
            "Writing job failed: the end of the stream",
        ),
        ("", "RuntimeError"),
    ],
)
def test_reasons_are_short_and_not_java(text: str, reason: str) -> None:
    assert short_reason(RuntimeError(text)) == reason


def test_the_package_packs_the_same_way_every_time() -> None:
    archive = package_archive()
    assert archive == package_archive()
    assert b"penstock/drivers/spark/worker.py" in archive


@pytest.mark.parametrize(
    ("master", "slots"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[ 3 ]", 3),
        ("local[4,3]", 4),
        ("local[*]", 16),
        ("local[*,2]", 16),
        ("local-cluster[2,1,1024]", None),
        ("spark://host:7077", None),
        ("yarn", None),
    ],
)
def test_tasks_that_a_local_master_runs_at_once(master: str, slots: int | None) -> None:
    assert local_slots(master, 1, 16) == slots
    assert local_slots(master, 2, 16) == (None if slots is None else slots // 2)
