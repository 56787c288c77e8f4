"""Reads tables with Iceberg's own library in Java, in the JVM that PySpark starts.

`python -m tests.connectors.iceberg.java_library LOCATION` prints the rows of the table whose metadata is there, one a
line. The library comes with Iceberg's runtime for Spark, of which there is none for the Spark that the tests use: so
Spark itself cannot read the table, but its reference implementation can.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from pyiceberg.table import Table

from penstock.trial.jars import installed

ROOT: Final = Path(__file__).parents[3]
RUNTIME: Final = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def rows_in_java(table: Table) -> list[str]:
    """The rows as the library shows them, sorted; it runs in a process of its own."""
    command = [sys.executable, "-m", "tests.connectors.iceberg.java_library", table.metadata_location]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return sorted(line for line in done.stdout.splitlines() if line.startswith("Record("))


def main(location: str) -> None:
    from pyspark.sql import SparkSession

    jars = installed(f"iceberg-{RUNTIME.rpartition(':')[2]}", [RUNTIME]) / "jars"
    paths = ",".join(str(path) for path in jars.glob("*.jar"))
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.jars", paths).getOrCreate()
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    table = iceberg.hadoop.HadoopTables(spark._jsc.hadoopConfiguration()).load(location)
    rows = iceberg.data.IcebergGenerics.read(table).build().iterator()
    while rows.hasNext():
        print(rows.next().toString())
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
