import pytest

from penstock.drivers.spark.handle import PROCESS_DIED, package_archive, short_reason

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
        ("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n\tat", "Spark was stopped"),
        ("", "RuntimeError"),
    ],
)
def test_reasons_are_short_and_not_java(text: str, reason: str) -> None:
    assert short_reason(RuntimeError(text)) == reason


def test_the_package_packs_the_same_way_every_time() -> None:
    archive = package_archive()
    assert archive == package_archive()
    assert b"penstock/drivers/spark/worker.py" in archive
