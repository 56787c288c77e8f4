"""The daemon from which workers fork: when a session gets it, and that a fork of it is safe."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.datastream import StreamExecutionEnvironment
from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.python_workers import DAEMON, DAEMON_SETTING, LOADED, warm_settings, without_archives

pytestmark = pytest.mark.slow

#: What a fork would lose, or share though it must not: threads, sockets, and numbers drawn alike in all workers.
LOOK = f"""
import gc, sys, threading
import {DAEMON}
import zmq
found = [str(thread) for thread in threading.enumerate() if thread is not threading.main_thread()]
found += [repr(one) for one in gc.get_objects() if isinstance(one, zmq.Context | zmq.Socket)]
print(found)
"""
#: A number of each of two processes that fork from the daemon.
DRAW = f"""
import os, sys
import {DAEMON}
sys.stdout.flush()
for _ in range(2):
    if os.fork() == 0:
        import numpy, random
        print(numpy.random.random(), random.random(), flush=True)
        os._exit(0)
    os.wait()
"""
LOADS = pytest.mark.parametrize("loaded", ["penstock.datastream", "penstock.datastream penstock.table"])


@pytest.mark.parametrize("master", ["local", "local[4]", "local[*]"])
def test_a_session_on_threads_gets_the_daemon(master: str) -> None:
    assert warm_settings({"spark.master": master}, sys.executable)[DAEMON_SETTING] == DAEMON


@pytest.mark.parametrize("master", ["spark://host:7077", "local-cluster[2,1,1024]", "yarn"])
def test_on_other_machines_it_is_sparks_own(master: str) -> None:
    """Penstock comes there with the job, later than the daemon begins."""
    assert warm_settings({"spark.master": master}, sys.executable) == {"spark.master": master}


def test_a_daemon_of_the_programs_choice_stays() -> None:
    settings = {"spark.master": "local[4]", DAEMON_SETTING: "pyspark.daemon"}
    assert warm_settings(settings, sys.executable) == settings


def test_a_python_without_penstock_gets_sparks_own(tmp_path: Path) -> None:
    settings = {"spark.master": "local[4]"}
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nPYTHONPATH= exec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    assert warm_settings(settings, str(bare)) == settings
    assert warm_settings(settings, str(tmp_path / "none")) == settings


@LOADS
def test_the_daemon_has_nothing_that_a_fork_would_lose_or_share(loaded: str) -> None:
    environment = {**os.environ, LOADED: loaded}
    found = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout == "[]\n"


@LOADS
def test_workers_draw_numbers_of_their_own(loaded: str) -> None:
    environment = {**os.environ, LOADED: loaded}
    drawn = subprocess.run([sys.executable, "-c", DRAW], capture_output=True, text=True, check=True, env=environment)
    assert len(set(drawn.stdout.split())) == 4


@pytest.mark.parametrize(("imports", "loaded"), [("datastream", "datastream"), ("table", "datastream penstock.table")])
def test_the_daemon_loads_what_the_program_has_loaded(imports: str, loaded: str) -> None:
    program = f"""
import sys, penstock.{imports}
from penstock.drivers.spark.python_workers import warm_settings
print(warm_settings({{"spark.master": "local[2]"}}, sys.executable)["spark.executorEnv.{LOADED}"])
"""
    asked = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert asked.stdout == f"penstock.{loaded}\n"


def test_folders_take_the_place_of_archives(tmp_path: Path) -> None:
    """Of the package of PyPI, which the search path has anyway, and of Spark's own distribution, which has no Py4J."""
    site, spark, own = tmp_path / "site", tmp_path / "spark" / "python", tmp_path / "own.zip"
    for module in (site / "pyspark", site / "py4j", spark / "pyspark"):
        module.mkdir(parents=True)
        (module / "__init__.py").touch()
    packaged = [str(site / "pyspark" / "python" / "lib" / name) for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]
    distributed = [str(spark / "lib" / name) for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]
    assert without_archives([*packaged, str(own), str(site)]) == [str(own), str(site)]
    assert without_archives([*packaged, str(own)]) == [str(site), str(own)]
    assert without_archives([*distributed, str(own)]) == [str(spark), distributed[1], str(own)]
    others = [str(tmp_path / "python" / "lib" / "pyspark.zip"), str(own), ""]
    assert without_archives(others) == others


@pytest.mark.spark
def test_workers_on_penstocks_own_session_begin_with_its_modules(spark: SparkHandle) -> None:
    """Each draws random numbers of its own, and computes with Arrow, whose memory a fork takes over."""

    def look(value: int) -> tuple[str, float, int]:
        import os
        import random

        import numpy
        import pyarrow

        total = pyarrow.compute.sum(pyarrow.array(range(10_000))).as_py()
        parent = Path(f"/proc/{os.getppid()}/cmdline").read_text()
        archived = [path for path in sys.path if path.endswith("pyspark.zip")]
        return " ".join([parent.split("\0")[2], *archived]), random.random() + numpy.random.random(), total

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    stream = env.from_collection(range(20)).rebalance().map(look)
    with stream.execute_and_collect() as results:  # type: ignore[union-attr]
        daemons, drawn, totals = zip(*results, strict=True)
    assert set(daemons) == {DAEMON}
    assert len(set(drawn)) == 20
    assert set(totals) == {sum(range(10_000))}


class SessionOnACluster:
    """What shipping Penstock asks of a session; it is its own context and configuration."""

    master = "spark://host:7077"

    def __init__(self, daemon: str) -> None:
        self.sent: list[str] = []
        self._daemon = daemon

    @property
    def sparkContext(self) -> "SessionOnACluster":
        return self

    def getConf(self) -> dict[str, str]:
        return {DAEMON_SETTING: self._daemon}

    def addPyFile(self, path: str) -> None:
        self.sent.append(path)


@pytest.mark.parametrize(("daemon", "sends"), [(DAEMON, False), ("pyspark.daemon", True)])
def test_penstock_is_sent_along_unless_the_daemon_has_loaded_it(daemon: str, sends: bool) -> None:
    session = SessionOnACluster(daemon)
    SparkHandle(cast(Any, session)).ship_package()
    assert bool(session.sent) is sends
