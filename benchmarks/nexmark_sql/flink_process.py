"""One query in Flink SQL, in a Java process of its own: `flink/Bench.java`, compiled when it is first needed."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pyarrow as pa

from benchmarks.nexmark_sql.queries import NexmarkQuery, tables
from benchmarks.processes import peak_bytes

_SOURCE: Final = Path(__file__).parent / "flink" / "Bench.java"
_BUILD: Final = Path(__file__).parents[2] / "build" / "nexmark_flink"
_SERVICE: Final = "META-INF/services/org.apache.flink.table.factories.Factory"
_FUNCTION: Final = "CREATE TEMPORARY FUNCTION count_char AS 'penstock.nexmark.Bench$CountChar'"
#: Arrow for Java needs these packages.
_OPENED: Final = ("java.base/java.nio", "java.base/java.lang", "java.base/java.util")
_SETTINGS: Final = {
    "parallelism.default": "1",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
    "rest.port": "0",
}
_MINI_BATCH: Final = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
}


class FlinkRefusal(Exception):
    """What Flink says of a query that it does not run."""


@dataclass(frozen=True)
class FlinkInstall:
    """A Flink from PyPI, and how its JVM is started. `heap`: such as "6g"."""

    python: Path
    heap: str

    @cached_property
    def jars(self) -> list[Path]:
        """What is on the class path. Raises `FileNotFoundError` without Flink."""
        root = self.python.parent.parent
        found = sorted(root.glob("lib/python3*/site-packages/pyflink/lib/*.jar"))
        found += sorted(root.glob("lib/python3*/site-packages/pyflink/opt/flink-python-*.jar"))
        if not found:
            raise FileNotFoundError(
                f"{self.python} has no Flink. Install one and name it with --flink: "
                f"python3 -m venv {root} && {root}/bin/pip install apache-flink"
            )
        return found

    def command(self) -> list[str]:
        """Starts the program, whose classes are made of its source where they are older."""
        jars = [str(one) for one in self.jars]
        service = _BUILD / _SERVICE
        if not service.exists() or service.stat().st_mtime < _SOURCE.stat().st_mtime:
            subprocess.run(["javac", "-nowarn", "-cp", ":".join(jars), "-d", str(_BUILD), str(_SOURCE)], check=True)
            service.parent.mkdir(parents=True, exist_ok=True)
            service.write_text("penstock.nexmark.Bench$Factory\n")
        opened = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
        memory = [f"-Xms{self.heap}", f"-Xmx{self.heap}", "-XX:MaxDirectMemorySize=8g"]
        return ["java", *opened, *memory, "-cp", ":".join([str(_BUILD), *jars]), "penstock.nexmark.Bench"]


def write_events(table: pa.Table, path: Path) -> None:
    """The events as a file; the parts of a row that is NULL are NULL, too."""
    batches = [
        pa.RecordBatch.from_arrays([_with_nulls(column) for column in batch.columns], batch.schema.names)
        for batch in table.to_batches()
    ]
    with pa.ipc.new_file(path, batches[0].schema) as file:
        for batch in batches:
            file.write_batch(batch)


def _with_nulls(column: pa.Array) -> pa.Array:
    if not pa.types.is_struct(column.type):
        return column
    return pa.StructArray.from_arrays(column.flatten(), fields=list(column.type), mask=column.is_null())


def statements(folder: Path, query: NexmarkQuery, events: Path, count: int, rate: int) -> list[str]:
    """All of a query, unchanged but for where events come from."""
    events_table, *views = tables(folder, count, rate)
    options = f"WITH ('connector' = 'nexmark-arrow', 'path' = '{events}')"
    events_table = re.sub(r"WITH\s*\(.*\)", options, events_table, flags=re.S)
    return [events_table, *views, _FUNCTION, *query.before, query.sink, query.insert]


class FlinkProcess:
    """A cluster in a JVM that runs one query as often as it is asked to.

    Args:
        install: where Flink is.
        texts: the query, see `statements`.
        scratch: an empty folder, for what the process is told and what it logs.
        mini_batch: as ours has it.
    """

    def __init__(self, install: FlinkInstall, texts: list[str], scratch: Path, mini_batch: bool) -> None:
        settings = _SETTINGS | (_MINI_BATCH if mini_batch else {})
        # No checkpoint is taken while time counts; a savepoint of some size needs files.
        settings |= {
            "execution.checkpointing.storage": "filesystem",
            "execution.checkpointing.dir": (scratch / "checkpoints").as_uri(),
        }
        (scratch / "statements").write_text("\0".join(texts))
        (scratch / "settings").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
        files = [str(scratch / "statements"), str(scratch / "settings")]
        self._log = scratch / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*install.command(), *files], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def __enter__(self) -> FlinkProcess:
        self._answer()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with suppress(BrokenPipeError):
            self._process.communicate()
        self._process.wait()

    def seconds(self, events: int) -> tuple[float, float]:
        """How long the first of the events take, from execution to the job's end, and of processor time."""
        wall, cpu = self._asked(f"run {events}")
        return float(wall), float(cpu)

    def state(self, folder: Path) -> int:
        """Takes a savepoint behind all events. Bytes that are live on the heap then, beyond the events."""
        return int(self._asked(f"state {folder.as_uri()}")[0])

    def peak_bytes(self) -> int:
        """The most memory that the process had."""
        return peak_bytes(str(self._process.pid))

    def _asked(self, command: str) -> list[str]:
        pipe: Any = self._process.stdin
        pipe.write(command + "\n")
        pipe.flush()
        return self._answer().split()

    def _answer(self) -> str:
        """The next answer; other lines are Flink's own."""
        pipe: Any = self._process.stdout
        for line in pipe:
            if line.startswith("nexmark refused "):
                raise FlinkRefusal(line[16:].strip())
            if line.startswith("nexmark "):
                return str(line[8:]).strip()
        raise FlinkRefusal(f"the process ended: {self._log.read_text()[-500:]}")
