"""Jobs on a Spark session of the program's own that does not serve: what is said, at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = """
import os, sys
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.drivers.spark.session import find_java

os.environ["JAVA_HOME"] = str(find_java(os.environ))
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
for mode, parallelism in {runs}:
    options = {{"execution.runtime-mode": mode, "parallelism.default": parallelism}}
    options |= {{"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": 1_000_000}}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    env.from_collection([1, 2, 3]).map(lambda value: value).set_parallelism(parallelism).print()
    try:
        env.execute("job")
        print("finished")
    except Exception as error:
        print(type(error).__name__, str(error))
"""


def run(runs: list[tuple[str, int]], **environ: str) -> list[str]:
    """What a program prints that runs these (mode, parallelism), one after the other."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(runs=runs)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src"), **environ},
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_a_job_with_more_slots_than_a_local_master_has_threads_fails_at_once() -> None:
    """E3: with wanted, got, and what to change; a job that fits runs on the same session."""
    hopeless, *fitting = run([("STREAMING", 3), ("STREAMING", 2)], PYSPARK_PYTHON=sys.executable)
    assert hopeless == (
        "SlotsUnavailableError job 'job' failed: wanted 3 slots, got 2: Spark runs on local[2], which never has more; "
        "start it with spark.master: local[3] or more, or lower the job's parallelism to 2 or less "
        "(parallelism.default)"
    )
    assert fitting[-1] == "finished"


@pytest.fixture
def other_python(tmp_path: Path) -> str:
    """A Python that says that it is another release."""
    script = tmp_path / "python"
    patch = (
        "import collections, runpy, sys; V = collections.namedtuple('V', 'major minor micro releaselevel serial'); "
        "sys.version_info = V(3, 99, 0, 'final', 0); del sys.argv[0]; sys.argv = sys.argv[sys.argv.index('-m') + 1:]; "
        "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
    )
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{patch}" x "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_workers_with_another_python_fail_the_job_at_once(other_python: str) -> None:
    """E8: in every mode, whatever the restart strategy; both versions are named, and PYSPARK_PYTHON."""
    minor = f"3.{sys.version_info.minor}"
    for line in run([("STREAMING", 1), ("BATCH", 1), ("MICRO_BATCH", 1)], PYSPARK_PYTHON=other_python):
        assert line.startswith("JobExecutionError")
        assert f"the workers run Python 3.99, and this program Python {minor}: set PYSPARK_PYTHON" in line
