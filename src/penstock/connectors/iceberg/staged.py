"""What writers hand to the committer: data files, or changes by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.connectors.iceberg.data_files import StoredFile
from penstock.connectors.iceberg.ledger import CommitName

#: The column of staged changes that says what each row does.
KIND: Final = "__penstock_kind"


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """Data files that are written and not in the table yet.

    Attributes:
        name: of the commit.
        spec_id: of the partitioning by which they were written.
        files: as plain values.
    """

    name: CommitName
    spec_id: int
    files: tuple[StoredFile, ...]


@dataclass(frozen=True, slots=True)
class StagedChanges:
    """The last change of each key, as columns and with one more that says whether the row is there.

    Attributes:
        name: of the commit.
        message: a stream of Arrow, compressed.
    """

    name: CommitName
    message: bytes

    @staticmethod
    def of(name: CommitName, changes: pa.Table) -> StagedChanges:
        """These changes under a name."""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, changes.schema, options=options) as writer:
            writer.write_table(changes)
        return StagedChanges(name, sink.getvalue().to_pybytes())

    def changes(self) -> pa.Table:
        """The changes."""
        with pa.ipc.open_stream(self.message) as reader:
            return reader.read_all()


Staged = StagedFiles | StagedChanges
