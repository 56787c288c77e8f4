"""The Spark of a session: one JVM and one SparkContext, which the processes of its programs share.

The session's process starts them. A program's process connects to the JVM through PySpark's gateway, whose port and
secret are in its environment, and wraps the existing context and session in Python's `SparkContext` and `SparkSession`
(`shared.attach`). This limits how programs affect each other:

- A program has a `SparkSession` of its own (`newSession`), with its own views and SQL settings.
- `stop` of either ends nothing, and Ctrl-C cancels only the program's own Spark jobs.
- Files that it sends to Spark's machines stay as long as the session: a task of any program fetches all of them.
- If it has such files, it also has Python workers of its own, so that these never import another program's modules.
- When its process has ended, its Spark jobs are cancelled by their groups. Workers of streams end by themselves.

The JVM itself is shared: a program that fills its memory, or ends it through the gateway, ends all jobs on it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from penstock.base.configuration import Configuration
from penstock.drivers.spark.handle import SHARED_VARIABLE, SparkHandle
from penstock.drivers.spark.session import obtain_spark, stop_spark

#: Slots of a local master that Penstock starts: workers that wait for data do not occupy a processor.
LOCAL_SLOTS: Final = 96


class SharedSpark:
    """A session's share of Spark.

    Args:
        configuration: the session's configuration.
        directory: for files that Spark's machines fetch as long as the session lives.

    Raises:
        PenstockError: if Spark cannot be started.
    """

    def __init__(self, configuration: Configuration, directory: Path) -> None:
        self._handle: SparkHandle = obtain_spark(configuration.to_dict(), LOCAL_SLOTS)
        self._directory = directory
        self._handle.ship_package()

    def environment(self) -> dict[str, str]:
        """Return the extra environment variables for a program's process to find this Spark.

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
        """Cancel the Spark jobs that a step-by-step job has left running."""
        self._handle.interrupt(f"penstock-{job_id}")

    def lives(self) -> bool:
        """Return whether its JVM runs; over Spark Connect, where this is unknown, return True."""
        if self._handle.is_connect:
            return True
        process = getattr(self._handle.session.sparkContext._gateway, "proc", None)
        return process is None or process.poll() is None

    def stop(self) -> None:
        """Stop Spark."""
        stop_spark()
