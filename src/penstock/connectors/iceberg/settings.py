"""Settings of an Iceberg sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.connectors.iceberg.catalog import TableLoader
from penstock.connectors.iceberg.tables import DeclaredTable

MAIN: Final = "main"
#: Buffered rows of this many bytes in memory are written to a file before the next checkpoint.
TARGET_BYTES: Final = 128 << 20
RETENTION_MS: Final = 30 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """See the methods of `IcebergSinkBuilder`.

    Attributes:
        loader: loads the table.
        declared: the table as the program declares it; None to use the existing table's columns.
        creates: whether to create a missing table.
        evolves: whether to add missing columns to the table.
        equality: the key columns, for changes by key; empty if rows are only added.
        overwrites: whether written rows replace the partitions that they belong to.
        branch: the branch to write to.
        target_bytes: the size in memory at which buffered rows are written to a file.
        retention_ms: how long the ledger remembers commits.
        properties: additional entries in the summary of each snapshot.
    """

    loader: TableLoader
    declared: DeclaredTable | None = None
    creates: bool = False
    evolves: bool = False
    equality: tuple[str, ...] = ()
    overwrites: bool = False
    branch: str = MAIN
    target_bytes: int = TARGET_BYTES
    retention_ms: int = RETENTION_MS
    properties: tuple[tuple[str, str], ...] = ()
