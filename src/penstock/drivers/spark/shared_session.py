"""A session's Spark in the process of one of its programs; see `session.SharedSpark`. Importing it imports PySpark."""

from __future__ import annotations

import logging
import os
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from penstock.drivers.spark.handle import PROGRAM_VARIABLE
from penstock.drivers.spark.session import interrupt_handler_kept

_log = logging.getLogger("penstock.spark")


class _SharedContext(SparkContext):
    """A context that a program cannot stop."""

    def stop(self) -> None:
        """Stop nothing: others use the context."""
        _log.info("the program's stop() leaves the session's Spark as it is")


class _SharedSession(SparkSession):
    """A session that a program cannot stop."""

    def stop(self) -> None:
        """Stop nothing: others use the context."""
        self.sparkContext.stop()


def attach() -> SparkSession:
    """Make the session's Spark that of this process: `SparkSession.builder.getOrCreate()` returns it from now on."""
    with interrupt_handler_kept():  # PySpark's handler would cancel the Spark jobs of all programs
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
        jvm = gateway.jvm
        java_context = jvm.JavaSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
        context = _SharedContext(gateway=gateway, jsc=java_context, conf=SparkConf(_jconf=java_context.getConf()))
    if program := os.environ.get(PROGRAM_VARIABLE):
        context.environment[PROGRAM_VARIABLE] = program
    kind = _session_class(jvm)
    theirs = kind.getDefaultSession().get()
    session = _SharedSession(context, theirs.newSession())
    kind.setDefaultSession(theirs)
    return session


def _session_class(jvm: Any) -> Any:
    find = getattr(SparkSession, "_get_j_spark_session_class", None)
    return jvm.SparkSession if find is None else find(jvm)
