"""A part of a table that is read separately: a file, and what its rows mean."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.connectors.delta.log import LoggedFile

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.connectors.delta.place import TablePlace
    from penstock.connectors.delta.pruning import FilePruning

#: The column of a file of changes that says what each is.
CHANGE_TYPE = "_change_type"


class Meaning(enum.Enum):
    """What the rows of a file are: all the same, or, in a file of changes, those that a pass over it gives.

    A file of changes is read twice, first for the rows that go and then for those that come: so a row as it was before
    an update always comes before the row as it is.
    """

    INSERTED = "inserted"
    DELETED = "deleted"
    REPLACED_OLD = "rows of a file that the version removes, without those that it adds again"
    REPLACED_NEW = "rows of a file that the version adds, without those that it removes"
    CHANGES_OLD = "old rows of changes"
    CHANGES_NEW = "new rows of changes"


@dataclass(frozen=True, slots=True)
class DeltaSplit:
    """A file of a version.

    Attributes:
        version: that it belongs to, and
        number: its place there.
        file: where it is.
        meaning: what its rows are.
        position: how many of its rows were read.
    """

    version: int
    number: int
    file: LoggedFile
    meaning: Meaning
    position: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """Earlier versions first."""
        return self.version, self.number


@dataclass(frozen=True, slots=True)
class WantedColumn:
    """A column as it is read.

    Attributes:
        output: how it is called in records.
        name: in the table.
        type: of its values.
    """

    output: str
    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Start:
    """Where a source begins: at most one of these is set.

    Attributes:
        version: the version to read, or from which on changes are read.
        timestamp: the same by a time, such as `2026-01-31T12:00:00Z`.
        is_latest: only what comes after the newest version.
    """

    version: int | None = None
    timestamp: str | None = None
    is_latest: bool = False


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a source reads.

    Attributes:
        place: of the table.
        columns: that are wanted.
        start: where it begins.
        interval_ms: how often new versions are looked for; None to read one version.
        ignore_deletes: whether versions that only delete rows are passed over.
        ignore_changes: whether rows of files that replace others count as new.
        reads_changes: whether changes are read as such.
        pruning: which files need not be read; None for none.
        limit: how many rows of each reader are enough; None for all.
    """

    place: TablePlace
    columns: tuple[WantedColumn, ...]
    start: Start = Start()
    interval_ms: int | None = None
    ignore_deletes: bool = False
    ignore_changes: bool = False
    reads_changes: bool = False
    pruning: FilePruning | None = None
    limit: int | None = None
