"""A sink that hands changes to the client, which folds them into the table that they stand for."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from datetime import UTC
from typing import Any, Final

from penstock.core.connector import Sink, SinkWriter, SinkWriterContext
from penstock.table.connectors.connector import TableConnector
from penstock.table.connectors.table_options import TableOptions
from penstock.table.connectors.tables import TableWriter
from penstock.table.data.conversion import seen_of
from penstock.table.data.logical_types import DataType
from penstock.table.plan.changes import ALL, SHORT
from penstock.table.plan.logical import Write

#: how often each row is there
Folded = Counter[tuple[Any, ...]]
_SIGN: Final = {"+I": 1, "+U": 1, "-U": -1, "-D": -1}


class KeptConnector(TableConnector):
    """`kept`: see the module's text."""

    name = "kept"
    takes_partitions = True

    def __init__(self, found: Folded) -> None:
        self._found = found

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Takes all changes."""
        return TableWriter(_KeptSink(self._found, list(write.schema.types)), ALL)


class _KeptSink(Sink[Any]):
    def __init__(self, found: Folded, types: list[DataType]) -> None:
        self._found = found
        self._types = types

    def __reduce__(self) -> Any:
        # What is found is the client's alone.
        return _KeptSink, (Counter(), self._types)

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        return _KeptWriter(context)

    def client_handler(self) -> Callable[[int, bytes], None]:
        seen = [seen_of(kind, UTC) for kind in self._types]

        def take(subtask: int, frame: bytes) -> None:
            for kind, values in pickle.loads(frame):
                row = tuple([one(value) for one, value in zip(seen, values, strict=True)])
                self._found[row] += _SIGN[SHORT[kind]]

        return take


class _KeptWriter(SinkWriter[Any, Any]):
    def __init__(self, context: SinkWriterContext) -> None:
        self._emit = context.emit_to_client

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        if values:
            self._emit(pickle.dumps(values))
