"""Packs this environment, and runs `packaged_job` by `spark-submit` with what the command has printed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from tests.clusters import packaged_job
from tests.spec.kill_loop import committed

from penstock.drivers.spark.session import find_java

SPARK = Path(pyspark.__file__).parent
PROGRAM = Path(packaged_job.__file__)


@dataclass(frozen=True)
class Packed:
    """An archive, and the commands that were printed with it, by the kind of cluster."""

    path: Path
    commands: Mapping[str, Sequence[str]]

    def submit(
        self, kind: str, master: str, settings: Mapping[str, str], folder: Path, records: int, rate: float
    ) -> list[str]:
        """The words that run the program on a cluster, as they were printed, with more settings."""
        *words, program = (master if "//HOST" in word else word for word in self.commands[kind])
        assert program == "PROGRAM.py"
        more = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        return [str(SPARK / "bin" / words[0]), *words[1:], *more, str(PROGRAM), str(folder), str(records), str(rate)]


def pack(folder: Path) -> Packed:
    """What `penstock package-env` makes of Penstock's own dependencies."""
    archive = folder / "environment.tar.gz"
    command = [sys.executable, "-m", "penstock.cli.main", "package-env", str(archive), "--only", "penstock"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return Packed(archive, commands_in(said))


def commands_in(said: str) -> dict[str, list[str]]:
    """The commands that are shown below a line that ends in a colon."""
    shown = re.findall(r"^(\w.*):\n((?:    .*\n)+)", said, re.MULTILINE)
    return {kind: shlex.split(command.replace("\\\n", " ")) for kind, command in shown}


def bare_environment(**more: str) -> dict[str, str]:
    """The variables of a process that knows nothing of this repository's environment."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "USER") if name in os.environ}
    home = {"JAVA_HOME": str(find_java(os.environ)), "SPARK_HOME": str(SPARK)}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", **kept, **home, **more}


def hidden(*folders: Path) -> list[str]:
    """What starts a command for which these folders are empty, but for Spark's; only root may."""
    lines = []
    for folder in folders:
        keep = f"mkdir -p {SPARK} && mount --move /mnt {SPARK}" if SPARK.is_relative_to(folder) else "true"
        lines += [f"mount --bind {SPARK} /mnt", f"mount -t tmpfs none {folder}", keep]
    return ["unshare", "--mount", "sh", "-c", " && ".join([*lines, 'exec "$@"']), "sh"]


def said_by(folder: Path) -> list[list[dict[str, Any]]]:
    """What each driver said that ran with this folder, one after the other."""
    logs = sorted(folder.glob("driver-*.jsonl"), key=lambda path: path.stat().st_mtime)
    return [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]


def places_of_output(folder: Path, records: int) -> list[list[Any]]:
    """Where records were counted: each place once. Raises `AssertionError` if plain Python gives another output."""
    lines = [json.loads(line) for line in committed(str(folder / "out")).elements()]
    assert sorted(line[0] for line in lines) == list(range(records))
    counts = Counter(number % packaged_job.KEYS for number in range(records))
    numbered = sorted((line[0] % packaged_job.KEYS, line[1]) for line in lines)
    assert numbered == [(key, number) for key in sorted(counts) for number in range(1, counts[key] + 1)]
    return [list(place) for place in {tuple(line[2:]) for line in lines}]


@contextlib.contextmanager
def process(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the context, and all that it started; what it says goes to a file."""
    with log.open("wb") as output:
        started = subprocess.Popen(
            command, env=environment, cwd=log.parent, stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
    try:
        yield started
    finally:
        started.terminate()
        started.wait()
