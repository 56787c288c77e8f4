"""An archive of `penstock package-env` on a standalone Spark whose machines have nothing of this repository (E8)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.class_archive import ARCHIVE, SHORT_LIVED_JVM, options
from tests.clusters.network import ROOT, missing
from tests.clusters.packaged import Packed, bare_environment, hidden, pack, places_of_output, process, said_by
from tests.clusters.standalone import SPARK_SETTINGS
from tests.spec.kill_executor import wait_for

RECORDS = 3_000
STANDALONE = "standalone, the driver here"

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return pack(tmp_path_factory.mktemp("packed"))


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A master and a worker, for whom the repository and its Python are not there, if this machine can do that."""
    daemons = tmp_path / "daemons"
    daemons.mkdir()
    environment = bare_environment(SPARK_DAEMON_JAVA_OPTS=SHORT_LIVED_JVM, SPARK_WORKER_DIR=str(tmp_path / "work"))
    launch = [str(Path(environment["SPARK_HOME"]) / "bin" / "spark-class")]
    base = [Path(sys.base_prefix)] if not Path("/usr").is_relative_to(sys.base_prefix) else []
    apart = hidden(ROOT, *base) if missing() is None else []
    arguments = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    log = daemons / "master.log"
    with process([*launch, *arguments], log, environment):
        pattern = re.compile(r"Starting Spark master at (spark://\S+)")
        wait_for(lambda: pattern.search(log.read_text()) is not None, "the master is up")
        found = pattern.search(log.read_text())
        assert found is not None
        resources = ["--cores", "2", "--memory", "600m", "--host", "127.0.0.1", "--webui-port", "0"]
        worker = [*apart, *launch, "org.apache.spark.deploy.worker.Worker", *resources, found[1]]
        with process(worker, daemons / "worker.log", environment):
            yield found[1]


@pytest.mark.slow
def test_executors_run_the_archives_python(packed: Packed, master: str, tmp_path: Path) -> None:
    """E8, G9: the command that was printed runs a job with checkpoints; its modules lie where Spark unpacked them."""
    settings = {
        **{key: SPARK_SETTINGS[key] for key in ("spark.executor.memory", "spark.driver.memory")},
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.extraJavaOptions": SHORT_LIVED_JVM,
    }
    command = packed.submit(STANDALONE, master, settings, tmp_path, RECORDS, 1_500.0)
    environment = bare_environment(SPARK_SUBMIT_OPTS=options(ARCHIVE))
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3_000:]
    places = places_of_output(tmp_path, RECORDS)
    assert len({process for _, process, *_ in places}) == 2
    for folder, _, *files in places:
        assert Path(folder).is_relative_to(tmp_path / "work")
        unpacked = Path(folder, "environment").resolve()
        assert [file for file in files if not Path(file).resolve().is_relative_to(unpacked)] == []
    (said,) = said_by(tmp_path)
    assert said[-1]["status"] == "ENDED"
    assert max(line.get("checkpoints", 0) for line in said) > 1
