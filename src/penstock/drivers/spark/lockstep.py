"""Tasks that work in step on Spark: a barrier stage, whose tasks exchange messages through files, round after round.

Spark runs all tasks of a barrier stage at a time, or none. In a round each task writes one file with what goes to the
others, and then meets them (`BarrierTaskContext.allGather`), which tells everyone where in the files its parts lie.
What a task sends to itself stays in its memory. A task deletes its file after the next round: by then all have read it.

The files are in a directory that all machines reach. They are pickled there and unpickled by tasks of the same job,
which are the only ones to know its name.
"""

from __future__ import annotations

import base64
import pickle
import uuid
from collections.abc import Iterator
from typing import Any, Final

from penstock.codecs.pickling import dumps
from penstock.connectors.file.filesystem import create, join, open_input, remove, rename
from penstock.core.batch.rows import Rows
from penstock.core.batch.task import BatchTask
from penstock.core.operators.lockstep import Answer, Round

#: Parts up to this size (bytes) travel with the report, not in a file.
_SMALL_MAX: Final = 8192


def kept_in_step(task: BatchTask, output: Iterator[Rows], subtask: int, directory: str) -> Iterator[Rows]:
    """The task's output; exchanges what it wants exchanged."""
    exchange: _Exchange | None = None
    for produced in output:
        if task.round is not None:
            exchange = exchange or _Exchange(subtask, directory)
            task.answer(exchange.run(task.round))
        yield produced


class _Exchange:
    def __init__(self, subtask: int, directory: str) -> None:
        from pyspark import BarrierTaskContext

        self._context = BarrierTaskContext.get()
        self._subtask = subtask
        self._root = directory
        # Another attempt of the stage does not meet the files of this one.
        self._directory = join(directory, uuid.uuid4().hex[:16])
        self._number = 0
        self._progress = 0
        self._written: str | None = None

    def run(self, round_: Round) -> Answer:
        """One round."""
        self._number += 1
        parts, path = self._write(round_)
        message = pickle.dumps((self._subtask, round_.report, parts, path), 5)
        gathered = [
            pickle.loads(base64.b64decode(text)) for text in self._context.allGather(base64.b64encode(message).decode())
        ]
        if self._written is not None:
            remove([self._written])  # of the round before, which all have left
        self._written = path
        gathered.sort(key=lambda one: one[0])
        payloads = [self._read(one, round_) for one in gathered]
        if round_.progress and self._subtask == 0:
            self._tell(round_.progress)
        return Answer(payloads, [one[1] for one in gathered])

    def _write(self, round_: Round) -> tuple[list[Any], str | None]:
        """For each subtask None, bytes, or (begin, size) in a file; and the file."""
        parts: list[Any] = []
        large: list[bytes] = []
        begin = 0
        for subtask, payload in enumerate(round_.payloads):
            data = None if payload is None or subtask == self._subtask else dumps(payload)
            if data is not None and len(data) > _SMALL_MAX:
                parts.append((begin, len(data)))
                large.append(data)
                begin += len(data)
            else:
                parts.append(data)
        if not large:
            return parts, None
        path = join(self._directory, f"round-{self._number}")
        with create(path) as file:
            for data in large:
                file.write(data)
        return parts, path

    def _read(self, one: tuple[int, Any, list[Any], str | None], round_: Round) -> Any:
        sender, _, parts, path = one
        if sender == self._subtask:
            return round_.payloads[self._subtask]
        part = parts[self._subtask]
        if isinstance(part, tuple):
            assert path is not None
            with open_input(path, decompress=False) as file:
                file.seek(part[0])
                part = file.read(part[1])
        return None if part is None else pickle.loads(part)

    def _tell(self, line: str) -> None:
        self._progress += 1
        name = join(self._root, f"progress-{self._progress}")
        with create(f"{name}.part") as file:
            file.write(line.encode())
        rename(f"{name}.part", name)
