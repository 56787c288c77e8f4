"""A Flink in a process of its own, which answers programs as long as it lives."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HERE = Path(__file__).parent
FACTORIES = "META-INF/services/org.apache.flink.table.factories.Factory"


class FlinkError(Exception):
    """Flink's process ended, or does not begin."""


class Flink:
    """Flink behind one of the Java programs here; Java's compiler has to be there.

    Args:
        jars: the folder of Flink's jars.
        program: the class whose `main` reads lines of JSON and answers each with one.
        arguments: what it is started with.
    """

    def __init__(self, jars: Path, program: str = "Oracle", *arguments: str) -> None:
        self._jars = f"{jars}/*"
        self._command = (program, *arguments)
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-flink-")
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        classes = Path(self._folder.name)
        sources = map(str, sorted(HERE.glob("*.java")))
        subprocess.run(["javac", "-nowarn", "-d", str(classes), "-cp", self._jars, *sources], check=True)
        (classes / FACTORIES).parent.mkdir(parents=True)
        (classes / FACTORIES).write_text("OracleTables\n")
        self._log = (classes / "log").open("w")
        self._process = subprocess.Popen(
            ["java", "-Xmx1g", "-Dlog4j2.level=OFF", "-cp", f"{classes}:{self._jars}", *self._command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._log.close()
        self._folder.cleanup()

    def answer(self, question: Any) -> Any:
        """What the program answers; `Oracle` says of a program: `sinks` with rows as text, `plans`, `error`."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise FlinkError((Path(self._folder.name) / "log").read_text()[-2000:])
        return json.loads(line)
