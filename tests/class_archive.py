"""An archive of Spark's classes, loaded and verified, for the JVMs of the tests: `python -m tests.class_archive`.

Half of the processor time of a JVM that runs one short job goes into loading Spark's classes. A JVM that finds the
archive unfit, as another Java does, goes on without it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: `scripts/packages` names an environment with another Spark, such as build/packages-lowest
_SET = Path(os.environ.get("PENSTOCK_ENVIRONMENT", "")).name.removeprefix("packages")
ARCHIVE = Path(__file__).parents[1] / "build" / f"spark-classes{_SET}.jsa"

#: For JVMs that live for a minute beside Python on two cores: less compiling, no threads to collect garbage.
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
_QUIET = "-Xlog:cds*=off,class+path=off"


def options(archive: Path) -> str:
    """The options for a JVM of the tests."""
    return f"{SHORT_LIVED_JVM} -XX:SharedArchiveFile={archive} {_QUIET}" if archive.exists() else SHORT_LIVED_JVM


def make(archive: Path) -> None:
    """Write the archive, of what a JVM loads that runs a bit of everything; it appears when it is whole."""
    from penstock.drivers.spark.session import hand_back, obtain_spark, stop_spark

    archive.parent.mkdir(exist_ok=True)
    partial = archive.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{SHORT_LIVED_JVM} -XX:ArchiveClassesAtExit={partial} {_QUIET}"
    handle = obtain_spark({"spark.sql.shuffle.partitions": "1"}, 4)
    jvm = handle.session.sparkContext._gateway.proc  # type: ignore[union-attr]
    _use(handle.session)
    hand_back(handle, 4)
    stop_spark()
    jvm.stdin.close()
    jvm.wait()
    partial.rename(archive)


def _use(spark: SparkSession) -> None:
    spark.range(0, 1, 1, 1).mapInArrow(lambda batches: batches, "id long").collect()
    numbers = spark.createDataFrame([(number, str(number)) for number in range(10)], "number long, text string")
    numbers.groupBy("text").sum("number").join(numbers, "text").orderBy("text").collect()
    with tempfile.TemporaryDirectory() as directory:
        numbers.write.parquet(f"{directory}/numbers")
        stream = spark.readStream.schema(numbers.schema).parquet(f"{directory}/numbers")
        query = stream.writeStream.format("noop").option("checkpointLocation", f"{directory}/query")
        query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    make(ARCHIVE)
