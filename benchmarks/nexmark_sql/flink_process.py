"""One query in Flink SQL, in a Java process of its own: the program of `flink`, compiled when it is first needed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.nexmark_sql.queries import NexmarkQuery, tables
from benchmarks.nexmark_sql.query_process import PATIENCE_S, ROOT, Memory, QueryProcess, measure_folder
from benchmarks.nexmark_sql.regimes import MINI_BATCH, Regime

_SOURCES: Final = tuple(sorted((Path(__file__).parent / "flink").glob("*.java")))
_BUILD: Final = ROOT / "build" / "nexmark_flink"
_SERVICE: Final = "META-INF/services/org.apache.flink.table.factories.Factory"
_TABLES: Final = ("EventTable", "LatencyTable")
_FUNCTION: Final = "CREATE TEMPORARY FUNCTION count_char AS 'penstock.nexmark.Bench$CountChar'"
#: Arrow for Java needs these packages.
_OPENED: Final = ("java.base/java.nio", "java.base/java.lang", "java.base/java.util")
_SETTINGS: Final = {
    "parallelism.default": "1",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
    "rest.port": "0",
    # A savepoint of some size needs files even where no checkpoint is taken.
    "execution.checkpointing.storage": "filesystem",
    "execution.checkpointing.incremental": "true",
    # The job ends with its events, and does not wait for one more checkpoint to begin.
    "execution.checkpointing.checkpoints-after-tasks-finish": "false",
    # A job that fails ends; with checkpoints it would begin anew.
    "restart-strategy.type": "none",
}


@dataclass(frozen=True)
class FlinkInstall:
    """A Flink from PyPI, and how its JVM is started. `heap`: such as "6g"."""

    python: Path
    heap: str

    @cached_property
    def jars(self) -> list[Path]:
        """What is on the class path. Raises `FileNotFoundError` without Flink."""
        root = self.python.parent.parent
        jars = sorted(root.glob("lib/python3*/site-packages/pyflink/lib/*.jar"))
        jars += sorted(root.glob("lib/python3*/site-packages/pyflink/opt/flink-python-*.jar"))
        if not jars:
            raise FileNotFoundError(
                f"{self.python} has no Flink. Install one and name it with --flink: "
                f"python3 -m venv {root} && {root}/bin/pip install apache-flink"
            )
        return jars

    def command(self) -> list[str]:
        """Starts the program, whose classes are made of its source where they are older."""
        jars = [str(jar) for jar in self.jars]
        service = _BUILD / _SERVICE
        if not service.exists() or service.stat().st_mtime < max(source.stat().st_mtime for source in _SOURCES):
            sources = map(str, _SOURCES)
            subprocess.run(["javac", "-nowarn", "-cp", ":".join(jars), "-d", str(_BUILD), *sources], check=True)
            service.parent.mkdir(parents=True, exist_ok=True)
            service.write_text("".join(f"penstock.nexmark.{table}$Factory\n" for table in _TABLES))
        opened = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
        memory = [f"-Xms{self.heap}", f"-Xmx{self.heap}", "-XX:MaxDirectMemorySize=8g"]
        return ["java", *opened, *memory, "-cp", ":".join([str(_BUILD), *jars]), "penstock.nexmark.Bench"]


def write_events(batches: Iterable[pa.RecordBatch], path: Path) -> None:
    """Write the events as a file; the parts of a row that is NULL are NULL, too."""
    file = None
    for batch in batches:
        with_nulls = pa.RecordBatch.from_arrays([_with_nulls(column) for column in batch.columns], batch.schema.names)
        file = file or pa.ipc.new_file(path, with_nulls.schema)
        file.write_batch(with_nulls)
    assert file is not None, "there are no events"
    file.close()


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


class FlinkProcess(QueryProcess):
    """A cluster in a JVM that runs one query.

    Args:
        install: where Flink is.
        texts: the query, see `statements`.
        scratch: an empty folder, for what the process is told and writes.
        regime: how it runs, as here.
        patience_s: how long an answer may take.
    """

    def __init__(
        self,
        install: FlinkInstall,
        texts: list[str],
        scratch: Path,
        regime: Regime,
        patience_s: float = PATIENCE_S,
    ) -> None:
        settings = _SETTINGS | regime.options(scratch / "checkpoints") | (MINI_BATCH if regime.mini_batch else {})
        (scratch / "statements").write_text("\0".join(texts))
        (scratch / "settings").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
        files = [str(scratch / "statements"), str(scratch / "settings")]
        super().__init__([*install.command(), *files], scratch / "log", patience_s=patience_s)

    def measure_state(self, folder: Path) -> Memory:
        """Stop the query with a savepoint behind all events. What is live on the heap then counts as memory."""
        return Memory(int(self.ask(f"state {folder.as_uri()}")), measure_folder(folder))
