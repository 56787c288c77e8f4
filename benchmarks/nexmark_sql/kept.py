"""A sink that hands changes to the client, which folds them into the table that they stand for."""

from __future__ import annotations

import pickle
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any, Final, TypeAlias

from penstock.runtime.connector import Committer, Sink, SinkWriter, SinkWriterContext
from penstock.sql.data.conversion import to_external
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import ALL, SHORT, Write
from penstock.sql.tables.connector import TableConnector, TableOptions
from penstock.sql.tables.tables import TableWriter

#: how often each row is there
Folded = Counter[tuple[Any, ...]]
#: changes between two checkpoints, and what tells them from all others
Committable: TypeAlias = tuple[str, bytes]
_SIGN: Final = {"+I": 1, "+U": 1, "-U": -1, "-D": -1}


class Kept:
    """The table that has come so far, whichever jobs wrote it."""

    def __init__(self) -> None:
        self._rows: Folded = Counter()
        self._taken: set[str] = set()

    @property
    def rows(self) -> Folded:
        """The rows that are there."""
        return Counter({row: times for row, times in self._rows.items() if times})

    def take(self, name: str, changes: Sequence[tuple[str, tuple[Any, ...]]]) -> None:
        """Take changes that are committed, once."""
        if name in self._taken:
            return
        self._taken.add(name)
        for kind, row in changes:
            self._rows[row] += _SIGN[kind]


class KeptConnector(TableConnector):
    """`kept`: see the module's text."""

    name = "kept"
    takes_partitions = True

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Takes all changes."""
        return TableWriter(_KeptSink(self._kept, list(write.schema.types)), ALL)


class _KeptSink(Sink[Any]):
    """Sends what is committed. A commit that comes again after a failure is known by its name."""

    def __init__(self, kept: Kept, types: list[DataType]) -> None:
        self._kept = kept
        self._types = types

    def __reduce__(self) -> Any:
        # What is kept is the client's alone.
        return _KeptSink, (Kept(), self._types)

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Committable]:
        return _KeptWriter()

    def create_committer(self, context: SinkWriterContext) -> Committer[Committable]:
        return _KeptCommitter(context)

    def client_handler(self) -> Callable[[int, bytes], None]:
        conversions = [to_external(kind, UTC) for kind in self._types]

        def take(subtask: int, frame: bytes) -> None:
            name, changes = pickle.loads(frame)
            rows = [
                (SHORT[kind], tuple([convert(value) for convert, value in zip(conversions, values, strict=True)]))
                for kind, values in pickle.loads(changes)
            ]
            self._kept.take(name, rows)

        return take


class _KeptWriter(SinkWriter[Any, Committable]):
    def __init__(self) -> None:
        self._values: list[Any] = []

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        self._values += values

    def prepare_commit(self) -> list[Committable]:
        values, self._values = self._values, []
        return [(uuid.uuid4().hex, pickle.dumps(values))] if values else []


class _KeptCommitter(Committer[Committable]):
    def __init__(self, context: SinkWriterContext) -> None:
        self._emit = context.emit_to_client

    def commit(self, committables: Sequence[Committable]) -> None:
        for committable in committables:
            self._emit(pickle.dumps(committable))
