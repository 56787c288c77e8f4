"""A session on Spark: its programs share one SparkContext, each from a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.session.sessions import SessionRig, session_in, until

from penstock.cli.program.launch import ProgramSpec
from penstock.cli.session.client import SubmittedProgram

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUERIES = """
import sys
from pyspark.sql import SparkSession
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

spark = SparkSession.builder.getOrCreate()
spark.range(10).createOrReplaceTempView(sys.argv[1])
print("application", spark.sparkContext.applicationId)
print("views", [table.name for table in spark.catalog.listTables()])
counted = spark.sparkContext.accumulator(0)
spark.sparkContext.parallelize(range(10), 2).foreach(lambda value: counted.add(value))
print("accumulated", counted.value)
spark.stop()
env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
env.from_collection(range(10)).key_by(lambda value: value % 2).sum().print()
env.execute("sums")
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionRig]:
    with session_in(tmp_path_factory.mktemp("home"), {}) as tested:
        yield tested


def printed(program: SubmittedProgram) -> list[str]:
    """What a program prints until it ends well."""
    texts: list[str] = []
    assert program.follow(texts.append) == 0, "".join(texts)
    return "".join(texts).splitlines()


def test_streams_beside_each_other_and_a_crash(session: SessionRig, tmp_path: Path) -> None:
    file, session.file = session.file, tmp_path / "crash"
    breaks = session.run("breaks", "crash")
    session.file = file
    stays = session.run("stays")
    until(lambda: session.checkpoints(stays) and session.checkpoints(breaks), 150)
    (tmp_path / "crash").touch()
    until(lambda: session.state(breaks) == "FAILED")
    before = session.checkpoints(stays)
    until(lambda: session.checkpoints(stays) > before)
    session.client.request("PATCH", f"/jobs/{stays}?mode=cancel")
    until(lambda: session.state(stays) == "CANCELED")


def test_programs_share_spark_and_no_views(session: SessionRig, tmp_path: Path) -> None:
    """What a program stops, goes on; a batch runs on the same Spark."""
    script = tmp_path / "queries.py"
    script.write_text(QUERIES)
    specs = [ProgramSpec(str(script), (name,)) for name in ("one", "other")]
    programs = [SubmittedProgram(session.client, spec) for spec in specs]
    (one, other) = (printed(program) for program in programs)
    assert [line for line in one if line.startswith("views")] == ["views ['one']"]
    assert [line for line in other if line.startswith("views")] == ["views ['other']"]
    assert {line for line in one + other if line.startswith("application")} == {one[0]}
    assert "accumulated 45" in one
    assert {"20", "25"} <= set(one)
