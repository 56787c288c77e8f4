"""Spark's side."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from tests.exchange.cases import Case, select
from tests.exchange.working import Program, main


class Spark(Program):
    """Data frames. Spark reads Avro with a package of its own, which is not part of it."""

    formats = ("parquet", "orc", "json", "csv")

    def __init__(self, session: SparkSession | None = None) -> None:
        self._spark = session or (
            SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.timeType.enabled", "true")
            .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
            .getOrCreate()
        )

    def write(self, form: str, path: str, cases: list[Case]) -> None:
        """See `Program`."""
        writer = self._spark.sql(select(cases, "spark")).coalesce(1).write
        if form == "csv":
            writer = writer.option("nullValue", "~").option("escape", '"').option("timestampNTZFormat", _PLAIN)
            writer = writer.option("timestampFormat", _MOMENT)
        if form == "json":
            writer = writer.option("timestampNTZFormat", _PLAIN).option("timestampFormat", _MOMENT)
        writer.format(form).save(path)

    def read(self, form: str, path: str, cases: list[Case]) -> list[tuple[Any, ...]]:
        """See `Program`."""
        reader = self._spark.read.format(form)
        if form in ("csv", "json"):
            reader = reader.schema(", ".join(["id INT", *(f"`{one.name}` {one.spark}" for one in cases)]))
            reader = reader.option("mode", "FAILFAST")
        if form == "csv":
            reader = reader.option("nullValue", "~").option("escape", '"')
        columns = ["id"] + [
            f"CAST({one.name} AS STRING)" if one.name.startswith("ltz") else f"CAST({one.name} AS {one.spark})"
            for one in cases
        ]
        return [tuple(row) for row in reader.load(path).selectExpr(*columns).collect()]


_PLAIN = "yyyy-MM-dd HH:mm:ss.SSSSSS"
_MOMENT = "yyyy-MM-dd HH:mm:ss.SSSSSSX"

if __name__ == "__main__":
    main(Spark())
