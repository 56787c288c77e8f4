"""The commands of docs/running.md that start a standalone Spark from the pip package (E8)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.class_archive import SHORT_LIVED_JVM
from tests.examples.pages import ROOT
from tests.servers.ports import free_port

from penstock.drivers.spark.session import find_java

PROGRAM = """
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_collection(["to be or", "not to be"]).flat_map(str.split)
words.map(lambda word: (word, 1)).key_by(lambda pair: pair[0]).sum(1).print()
env.execute("words")
"""
#: The daemons and the session serve on loopback alone, and without pages.
LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_MASTER_WEBUI_PORT": "0", "SPARK_WORKER_WEBUI_PORT": "0"}

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def commands_of_page() -> list[str]:
    """The lines of the shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/running.md").read_text(), re.MULTILINE | re.DOTALL)
    return "".join(blocks).splitlines()


def run_shell(lines: list[str], environment: dict[str, str], folder: Path) -> str:
    """What a script prints; raises `AssertionError` if one of its commands fails."""
    script = "\n".join(["set -e", *lines])
    ran = subprocess.run(
        ["bash", "-c", script], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"
    java = {"JAVA_HOME": str(find_java(os.environ)), "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED_JVM}
    return {**kept, **LOOPBACK, **java, "PATH": path, "HOME": str(tmp_path)}


@pytest.fixture
def lines(environment: dict[str, str], tmp_path: Path) -> Iterator[list[str]]:
    """The commands of the page for this machine; what they have started is stopped in the end."""
    port = str(free_port())
    lines = [line.replace("HOST", "127.0.0.1").replace("7077", port) for line in commands_of_page()]
    lines = [line.replace("--memory 4g", "--memory 1g").replace("=1g", "=600m") for line in lines]
    yield lines
    settings = [line for line in lines if re.match(r"export|DAEMON=", line)]
    stops = [f"{line} || true" for line in lines if " stop " in line]
    assert stops
    run_shell([*settings, *stops], environment, tmp_path)


def test_the_commands_of_the_page_run_a_program(lines: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    """E8: a master and a worker start from PySpark's own scripts, run a job, and stop."""
    (tmp_path / "program.py").write_text(PROGRAM)
    printed = run_shell(lines, environment, tmp_path).splitlines()
    counts = sorted(line.partition("> ")[2] for line in printed if "> (" in line)
    assert counts == ["('be', 1)", "('be', 2)", "('not', 1)", "('or', 1)", "('to', 1)", "('to', 2)"]
    assert len([line for line in printed if line.startswith("stopping ")]) == 2
    assert (tmp_path / "spark" / "work").is_dir()
