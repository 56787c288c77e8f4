"""What a sink of Iceberg is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.connectors.iceberg.catalog import TableLoader
from penstock.connectors.iceberg.tables import DeclaredTable

MAIN: Final = "main"
#: Rows of this many bytes in memory are worth a file before a checkpoint comes.
TARGET_BYTES: Final = 128 << 20
RETENTION_MS: Final = 30 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """See the methods of `IcebergSinkBuilder`.

    Attributes:
        loader: the table.
        declared: what the program says of it; None for what it is.
        creates: whether it is made where it is not there.
        evolves: whether columns are added that it does not have.
        equality: the columns that tell rows apart, for changes by key; none where rows are only added.
        overwrites: whether what is written takes the place of the partitions that it belongs to.
        branch: which one is written to.
        target_bytes: rows of how many bytes in memory are worth a file.
        retention_ms: for how long the ledger remembers.
        properties: what the summary of each snapshot says besides.
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
