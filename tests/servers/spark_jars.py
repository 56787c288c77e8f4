"""Jars of Spark's formats, for sessions of tests. `python -m tests.servers.install` fetches the small ones.

The jars of Delta Lake and Iceberg exist for some versions of Spark only, and are larger: nothing fetches them but a
program that asks for them.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from penstock.base.errors import MissingPathError
from penstock.cli.trial.servers import cache, installed

#: the last release of spark-avro that there is; Spark 4.3 takes it
_AVRO_MAX: Final = "4.2.0"
SPARK: Final = version("pyspark")
SMALL: Final = {
    "postgresql": "org.postgresql:postgresql:42.7.7",
    "mariadb": "org.mariadb.jdbc:mariadb-java-client:3.5.6",
    "mongodb": "org.mongodb.spark:mongo-spark-connector_2.13:10.5.0",
    "avro": f"org.apache.spark:spark-avro_2.13:{min(SPARK, _AVRO_MAX)}",
}
#: for Spark 4.0
LARGE: Final = {
    "delta": "io.delta:delta-spark_2.13:4.0.1",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1",
}
#: what Spark brings itself
_OF_SPARK: Final = ("scala-library", "scala-parallel", "spark-tags", "antlr4-runtime")


def fetch(name: str) -> None:
    """Download a jar and what it needs, unless they are there."""
    installed(_directory(name), [_coordinates(name)])


def find(*names: str) -> str:
    """The value of `spark.jars` for these formats.

    Raises:
        MissingPathError: if a jar is not there.
    """
    found: list[Path] = []
    for name in names:
        jars = cache() / _directory(name) / "jars"
        if not jars.is_dir():
            raise MissingPathError(f"the jar {_coordinates(name)} is not there: run python -m tests.servers.install")
        found += [jar for jar in sorted(jars.glob("*.jar")) if not jar.name.startswith(_OF_SPARK)]
    return ",".join(str(jar) for jar in found)


def find_or_skip(*names: str) -> str:
    """As `find`; skips the test where a jar is absent."""
    try:
        return find(*names)
    except MissingPathError as error:
        pytest.skip(str(error))


def _coordinates(name: str) -> str:
    return (SMALL | LARGE)[name]


def _directory(name: str) -> str:
    return "spark-" + _coordinates(name).partition(":")[2].replace(":", "-")
