"""Spark's own word on a `spark-submit` command: whether it takes the options, and whether it knows the settings."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

#: Classes of Spark that declare its settings; they do so when they are loaded.
DECLARING: Final = (
    "org.apache.spark.internal.config.package$",
    "org.apache.spark.internal.config.Network$",
    "org.apache.spark.internal.config.Python$",
    "org.apache.spark.deploy.k8s.Config$",
    "org.apache.spark.deploy.yarn.config.package$",
)
#: Settings whose keys end in a name that is the user's.
OPEN: Final = re.compile(r"spark\.(?:executorEnv|yarn\.appMasterEnv|kubernetes\.driverEnv|hadoop)\.\w.*")


class SubmitParser:
    """Reads commands as `spark-submit` does."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        for name in DECLARING:
            jvm.java.lang.Class.forName(name, True, self._loader())

    def _loader(self) -> Any:
        return self._jvm.java.lang.Thread.currentThread().getContextClassLoader()

    def problems(self, words: Sequence[str]) -> list[str]:
        """What is wrong with the arguments of `spark-submit`; empty if nothing is."""
        listed = self._jvm.java.util.ArrayList()
        for word in words:
            listed.add(word)
        convert = self._jvm.scala.jdk.javaapi.CollectionConverters
        environment = self._jvm.java.util.HashMap()
        environment.put("HADOOP_CONF_DIR", "/etc/hadoop")  # that it is set is all that is looked at
        variables = getattr(self._jvm.scala.collection.immutable.Map, "from")(convert.asScala(environment))
        try:
            parsed = self._jvm.org.apache.spark.deploy.SparkSubmitArguments(convert.asScala(listed).toSeq(), variables)
        except Exception as error:  # noqa: BLE001 - whatever Spark raises becomes a problem
            return [str(getattr(error, "java_exception", error))]
        keys = list(convert.asJava(parsed.sparkProperties().keys().toSeq()))
        return [f"Spark has no setting {key}" for key in sorted(keys) if not self.knows(key)]

    def knows(self, key: str) -> bool:
        """Whether Spark has a setting with this key."""
        return (
            bool(OPEN.fullmatch(key))
            or self._jvm.org.apache.spark.internal.config.ConfigEntry.findEntry(key) is not None
        )


@contextlib.contextmanager
def submit_parser() -> Iterator[SubmitParser]:
    """One with a JVM of its own, which ends with the context."""
    from pyspark.java_gateway import launch_gateway

    before = os.environ.pop("PYSPARK_GATEWAY_PORT", None)
    gateway: Any = launch_gateway()
    try:
        yield SubmitParser(gateway.jvm)
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        if before is not None:
            os.environ["PYSPARK_GATEWAY_PORT"] = before
