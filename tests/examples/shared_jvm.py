"""A JVM that scripts share: to start one takes longer than most of them run."""

from __future__ import annotations

import os
import sys
from typing import Any
from unittest import mock

from penstock.drivers.spark.java import find_java
from penstock.drivers.spark.warm_workers import DAEMON, DAEMON_SETTING

#: Threads for Spark tasks: more than any page's job takes at once.
THREADS = 16


class SharedJvm:
    """A JVM without a Spark session; scripts that find it make and end their own in it, one after the other."""

    def __init__(self) -> None:
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway

        python = {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(find_java(os.environ))}
        with mock.patch.dict(os.environ, python):
            conf = SparkConf(loadDefaults=False).setMaster(f"local[{THREADS}]").set(DAEMON_SETTING, DAEMON)
            self._gateway: Any = launch_gateway(conf, {})
        parameters = self._gateway.gateway_parameters
        self.variables = {
            **python,
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
        }

    def end_session(self) -> None:
        """End the session that a script left behind, as the end of its own JVM would have."""
        sessions = self._gateway.jvm.org.apache.spark.sql.SparkSession
        for found in (sessions.getActiveSession(), sessions.getDefaultSession()):
            if found.isDefined():
                found.get().stop()
        sessions.clearActiveSession()
        sessions.clearDefaultSession()

    def close(self) -> None:
        """End the JVM."""
        self._gateway.shutdown()
        self._gateway.proc.stdin.close()
        self._gateway.proc.wait(60)
