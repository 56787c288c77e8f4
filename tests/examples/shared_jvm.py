"""A JVM and a Spark application that scripts share: to start them takes longer than most of the scripts run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from penstock.drivers.spark.python_workers import DAEMON, DAEMON_SETTING
from penstock.drivers.spark.session import find_java

#: Threads for Spark tasks: more than any page's job takes at once.
THREADS = 16

#: The `sitecustomize` of scripts: a context is new in Python alone, and when it is stopped the application goes on.
JOIN = """
from pyspark import SparkContext
def _join(self, conf):
    spark = self._jvm.org.apache.spark
    return spark.api.java.JavaSparkContext(spark.SparkContext.getOrCreate(conf))
_stop = SparkContext.stop
def _leave(self):
    self._jsc = None
    _stop(self)
SparkContext._initialize_context = _join
SparkContext.stop = _leave
"""


class SharedJvm:
    """A JVM with one Spark application; scripts that find it have a session of their own there, one after the other.

    The daemon that forks Python workers is the application's, and its workers serve one script after the other.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path) -> None:
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway

        (folder / "sitecustomize.py").write_text(JOIN)
        python = {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(find_java(os.environ))}
        with mock.patch.dict(os.environ, python):
            conf = SparkConf(loadDefaults=False).setMaster(f"local[{THREADS}]").set(DAEMON_SETTING, DAEMON)
            self._gateway: Any = launch_gateway(conf, {})
        parameters = self._gateway.gateway_parameters
        self.variables = {
            **python,
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
            "PYTHONPATH": str(folder),
        }

    def end_session(self) -> None:
        """End what a script left behind, as the end of its own JVM would have."""
        spark = self._gateway.jvm.org.apache.spark
        spark.SparkContext.getOrCreate().cancelAllJobs()
        spark.sql.SparkSession.clearActiveSession()
        spark.sql.SparkSession.clearDefaultSession()

    def close(self) -> None:
        """End the JVM."""
        self._gateway.shutdown()
        self._gateway.proc.stdin.close()
        self._gateway.proc.wait(60)
