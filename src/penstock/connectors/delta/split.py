"""A split of a table: a file, and the meaning of its rows."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.connectors.delta.log import LoggedFile

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.connectors.delta.place import TablePlace
    from penstock.connectors.delta.pruning import FilePruning

#: The column of a change file that holds each row's change type.
CHANGE_TYPE = "_change_type"


class Meaning(enum.Enum):
    """The meaning of a file's rows, or, for a change file, the rows that one pass over it returns.

    A change file is read twice, first for the old rows and then for the new ones. The previous row of an update
    (UPDATE_BEFORE) therefore always precedes the new one.
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
        version: the version of the file.
        number: the index of the file within the version.
        file: the file.
        meaning: the meaning of its rows.
        position: the number of rows already read.
    """

    version: int
    number: int
    file: LoggedFile
    meaning: Meaning
    position: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """The sort key: earlier versions first."""
        return self.version, self.number


@dataclass(frozen=True, slots=True)
class WantedColumn:
    """A column to read.

    Attributes:
        output: the column's name in records.
        name: the column's name in the table.
        type: the type of its values.
    """

    output: str
    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Start:
    """The starting point of a source: at most one attribute is set.

    Attributes:
        version: the version to read, or the first version whose changes to read.
        timestamp: the same, given as a time such as `2026-01-31T12:00:00Z`.
        is_latest: whether to read only changes after the newest version.
    """

    version: int | None = None
    timestamp: str | None = None
    is_latest: bool = False


@dataclass(frozen=True, slots=True)
class Scanned:
    """The scan of a source.

    Attributes:
        place: the table's location.
        columns: the columns to read.
        start: the starting point.
        interval_ms: the interval at which to check for new versions; None to read one version.
        ignore_deletes: whether to skip versions that only delete rows.
        ignore_changes: whether to treat rows of rewritten files as new.
        reads_changes: whether to read row-level changes.
        pruning: selects the files and row groups to read; None for all.
        limit: the number of rows after which a reader may stop; None for all.
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
