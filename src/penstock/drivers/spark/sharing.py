"""The Spark of a session: one JVM and one SparkContext, which the processes of its programs share.

The session's process starts them. A program's process connects to the JVM by PySpark's gateway, whose port and secret
it finds in its environment, and makes Python's `SparkContext` and `SparkSession` of the ones that are there
(`shared.attach`). What a program can do to others is so limited:

- It has a `SparkSession` of its own (`newSession`), with views and SQL settings of its own.
- `stop` of either ends nothing, and Ctrl-C cancels no Spark jobs but its own.
- Files that it sends to Spark's machines stay for as long as the session: a task of any program fetches all of them.
- If it has such files, its Python workers are its own, so that nobody else's modules are imported from them.
- When its process has ended, its Spark jobs are cancelled by their groups. Workers of streams end by themselves.

The JVM itself is shared: whoever fills its memory, or ends it through the gateway, ends all jobs on it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from penstock.base.configuration import Configuration
from penstock.drivers.spark.handle import SHARED_VARIABLE, SparkHandle
from penstock.drivers.spark.session import obtain_spark, stop_spark

#: Slots that a local master of our making has: workers that wait for data take no processor.
LOCAL_SLOTS: Final = 96


class SharedSpark:
    """What a session has of Spark.

    Args:
        configuration: of the session.
        directory: for files that Spark's machines fetch as long as the session lives.

    Raises:
        PenstockError: if Spark cannot be started.
    """

    def __init__(self, configuration: Configuration, directory: Path) -> None:
        self._handle: SparkHandle = obtain_spark(configuration.to_dict(), LOCAL_SLOTS)
        self._directory = directory
        self._handle.ship_package()

    def environment(self) -> dict[str, str]:
        """What the environment of a program's process has more, so that it finds this Spark.

        Over Spark Connect there is nothing to share: each process connects by itself.
        """
        if self._handle.is_connect:
            return {}
        context: Any = self._handle.session.sparkContext
        gateway = context._gateway
        return {
            SHARED_VARIABLE: str(self._directory),
            "PYSPARK_GATEWAY_PORT": str(gateway.java_parameters.port),
            "PYSPARK_GATEWAY_SECRET": str(gateway.java_parameters.auth_token),
            "PYSPARK_PYTHON": str(context.pythonExec),
        }

    def cancel(self, job_id: str) -> None:
        """Cancel the Spark jobs that a job in steps has left."""
        self._handle.interrupt(f"penstock-{job_id}")

    def lives(self) -> bool:
        """Whether its JVM runs; over Spark Connect that is not known, and so it does."""
        if self._handle.is_connect:
            return True
        process = getattr(self._handle.session.sparkContext._gateway, "proc", None)
        return process is None or process.poll() is None

    def stop(self) -> None:
        """End it."""
        stop_spark()
