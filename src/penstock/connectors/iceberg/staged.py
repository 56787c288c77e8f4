"""Committables that writers hand to the committer: data files, or changes by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.connectors.iceberg.data_files import StoredFile
from penstock.connectors.iceberg.ledger import CommitName

#: The boolean column of staged changes that marks deleted rows.
KIND: Final = "__penstock_kind"


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """Data files that are written but not in the table yet.

    Attributes:
        name: the name of the commit.
        spec_id: the id of the partition spec under which they were written.
        files: the data files as plain values.
    """

    name: CommitName
    spec_id: int
    files: tuple[StoredFile, ...]


@dataclass(frozen=True, slots=True)
class StagedChanges:
    """The last change of each key, as columns, with an additional column that marks deleted rows.

    Attributes:
        name: the name of the commit.
        message: a compressed Arrow stream.
    """

    name: CommitName
    message: bytes

    @staticmethod
    def of(name: CommitName, changes: pa.Table) -> StagedChanges:
        """Encode changes under a name."""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, changes.schema, options=options) as writer:
            writer.write_table(changes)
        return StagedChanges(name, sink.getvalue().to_pybytes())

    def changes(self) -> pa.Table:
        """Decode the changes."""
        with pa.ipc.open_stream(self.message) as reader:
            return reader.read_all()


Staged = StagedFiles | StagedChanges
