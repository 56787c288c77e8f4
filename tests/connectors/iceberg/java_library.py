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

from penstock.cli.trial.servers import installed

ROOT: Final = Path(__file__).parents[3]
RUNTIME: Final = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def rows_in_java(table: Table) -> list[str]:
    """The rows as the library shows them, sorted; it runs in a process of its own."""
    command = [sys.executable, "-m", "tests.connectors.iceberg.java_library", table.metadata_location]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return sorted(line for line in done.stdout.splitlines() if line.startswith("Record("))


def write_in_java(location: Path) -> tuple[str, list[str]]:
    """A table that the library writes as Flink's sink does, with deletions by equality: its metadata, and its rows."""
    command = [sys.executable, "-m", "tests.connectors.iceberg.java_library", "--write", str(location)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    (metadata,) = [line.removeprefix("metadata ") for line in lines if line.startswith("metadata ")]
    return metadata, sorted(line for line in lines if line.startswith("Record("))


def _start_spark() -> Any:
    from pyspark.sql import SparkSession

    jars = installed(f"iceberg-{RUNTIME.rpartition(':')[2]}", [RUNTIME]) / "jars"
    paths = ",".join(str(path) for path in jars.glob("*.jar"))
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    return builder.config("spark.jars", paths).getOrCreate()


def main(location: str, writes: bool) -> None:
    spark = _start_spark()
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    tables = iceberg.hadoop.HadoopTables(spark._jsc.hadoopConfiguration())
    if writes:
        table = _Writing(spark, iceberg, tables, location).write()
        print(f"metadata {table.operations().current().metadataFileLocation()}")
    else:
        table = tables.load(location)
    rows = iceberg.data.IcebergGenerics.read(table).build().iterator()
    while rows.hasNext():
        print(rows.next().toString())
    spark.stop()


class _Writing:
    """Writes three checkpoints of changes by key; each deletes the keys that it writes."""

    def __init__(self, spark: Any, iceberg: Any, tables: Any, location: str) -> None:
        self._gateway, self._iceberg = spark.sparkContext._gateway, iceberg
        fields = spark._jvm.java.util.ArrayList()
        types = iceberg.types.Types
        # py4j makes Integer of small numbers, so that no column is a Long.
        for number, (name, kind) in enumerate(
            (("id", types.IntegerType), ("k", types.StringType), ("v", types.IntegerType)), 1
        ):
            fields.add(types.NestedField.optional(number, name, kind.get()))
        self._schema = iceberg.Schema(fields)
        spec = iceberg.PartitionSpec.unpartitioned()
        properties = spark._jvm.java.util.HashMap()
        properties.put("format-version", "2")
        self._table = tables.create(self._schema, spec, properties, f"file://{location}")
        self._number = 0

    def write(self) -> Any:
        self._commit([(1, "a", 1), (2, "a", 1), (None, "a", 1)], ["id"], [])
        self._commit([(1, "b", 2)], ["id"], [(1,), (None,), (7,)])
        self._commit([(3, "c", 3)], ["id", "k"], [(2, "a"), (1, "a")])
        return self._table

    def _commit(self, rows: list[Any], key: list[str], deleted: list[Any]) -> None:
        delta = self._table.newRowDelta()
        delta.addRows(self._file(self._schema, rows, key, "newDataWriter").toDataFile())
        if deleted:
            names = self._gateway.new_array(self._gateway.jvm.java.lang.String, len(key))
            for place, name in enumerate(key):
                names[place] = name
            delta.addDeletes(
                self._file(self._schema.select(names), deleted, key, "newEqualityDeleteWriter").toDeleteFile()
            )
        delta.commit()

    def _file(self, schema: Any, rows: list[Any], key: list[str], kind: str) -> Any:
        iceberg, gateway = self._iceberg, self._gateway
        ids = gateway.new_array(gateway.jvm.int, len(key))
        names = gateway.new_array(gateway.jvm.java.lang.String, len(key))
        for place, name in enumerate(key):
            ids[place], names[place] = self._schema.findField(name).fieldId(), name
        builder = iceberg.data.GenericFileWriterFactory.Builder(self._table)
        builder.dataFileFormat(iceberg.FileFormat.PARQUET).dataSchema(self._schema)
        builder.deleteFileFormat(iceberg.FileFormat.PARQUET).equalityFieldIds(ids)
        factory = builder.equalityDeleteRowSchema(self._schema.select(names)).build()
        self._number += 1
        path = f"{self._table.location()}/data/{self._number}.parquet"
        encrypted = iceberg.encryption.EncryptedFiles.encryptedOutput(
            self._table.io().newOutputFile(path), iceberg.encryption.EncryptionKeyMetadata.EMPTY
        )
        writer = getattr(factory, kind)(encrypted, self._table.spec(), None)
        record = iceberg.data.GenericRecord.create(schema)
        for row in rows:
            for place, value in enumerate(row):
                record.set(place, value)
            writer.write(record)
        writer.close()
        return writer


if __name__ == "__main__":
    main(sys.argv[-1], sys.argv[1] == "--write")
