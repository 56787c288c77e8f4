"""The log of a Delta Lake table: files and changes of a version, supported table features, splits, and file pruning.

**Table features.** The features of a table's protocol decide whether it can be read and written. Reader features change
how files are interpreted, and writer features define rules for new files. An unknown feature is rejected by name,
because ignoring it would produce wrong rows.

**Splits.** A `DeltaSplit` is a file together with the meaning of its rows. `FilePruning` skips files and row groups by
their column statistics.
"""

from __future__ import annotations

import datetime
import enum
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from penstock.base.errors import ConfigurationError
from penstock.connectors.delta.table import (
    MissingTableError,
    TableMismatchError,
    TablePlace,
    UnsupportedTableError,
    VersionError,
    is_same,
    read_arrow_schema,
    to_log_texts,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable


_LOG: Final = "_delta_log"


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A data file or a change file.

    Attributes:
        path: the path relative to the table.
        partition: the values of the partition columns as text, by name.
    """

    path: str
    partition: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Version:
    """The changes that a version makes.

    Attributes:
        number: the version number.
        operation: the operation that the version records as its origin.
        added: files with new rows.
        removed: files whose rows were deleted. Files that were only compacted are in neither tuple.
        changes: files with row-level changes; empty if the writer recorded none.
        columns: the table's new columns; None if they did not change.
        vector: a file some of whose rows are deleted by a deletion vector; None without one.
    """

    number: int
    operation: str
    added: tuple[LoggedFile, ...]
    removed: tuple[LoggedFile, ...]
    changes: tuple[LoggedFile, ...]
    columns: pa.Schema | None
    vector: str | None = None


def read_version(location: TablePlace, files: pafs.FileSystem, number: int) -> Version | None:
    """Read a version from its log file; return None if the file does not exist.

    Raises:
        UnsupportedTableError: if the version uses an unsupported feature.
    """
    path = f"{_LOG}/{number:020d}.json"
    if files.get_file_info([path])[0].type == pafs.FileType.NotFound:
        return None
    with files.open_input_file(path) as file:
        text: bytes = file.read()
    actions = [json.loads(line) for line in text.splitlines() if line.strip()]
    return _version(location, number, actions)


def _version(location: TablePlace, number: int, actions: Sequence[Mapping[str, Any]]) -> Version:
    added, removed, changes = [], [], []
    columns, operation, vector = None, "", None
    for action in actions:
        for kind, details in action.items():
            if kind in ("add", "remove") and details.get("deletionVector") and details.get("dataChange", True):
                vector = unquote(details["path"])
            if kind == "add" and details.get("dataChange", True):
                added.append(_file(location, details))
            elif kind == "remove" and details.get("dataChange", True):
                removed.append(_file(location, details))
            elif kind == "cdc":
                changes.append(_file(location, details))
            elif kind == "metaData":
                columns = _columns(details["schemaString"])
            elif kind == "commitInfo":
                operation = str(details.get("operation", ""))
    return Version(number, operation, tuple(added), tuple(removed), tuple(changes), columns, vector)


def _columns(text: str) -> pa.Schema:
    from deltalake import Schema

    return pa.schema(Schema.from_json(text).to_arrow())


def _file(location: TablePlace, details: Mapping[str, Any]) -> LoggedFile:
    path = unquote(details["path"])
    _check_relative(location, path)
    return LoggedFile(path, tuple((details.get("partitionValues") or {}).items()))


def refuse_vector(location: TablePlace, path: str, why: str) -> NoReturn:
    """Raise `UnsupportedTableError` for a file some of whose rows are deleted by a deletion vector."""
    raise UnsupportedTableError(
        f"rows of {path} in the Delta table {location.path} are deleted by a deletion vector, {why}: turn them off "
        "(delta.enableDeletionVectors = false) and run REORG TABLE … APPLY (PURGE)"
    )


def _check_relative(location: TablePlace, path: str) -> None:
    if path.startswith(("/", "file:")) or "://" in path:
        raise UnsupportedTableError(
            f"the Delta table {location.path} has files elsewhere, such as {path}: clones that share files are not read"
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """The log's statistics of a column of a data file, as Arrow values; None where the log has none."""

    rows: int
    least: pa.Scalar | None
    greatest: pa.Scalar | None
    nulls: int | None


def list_table_files(location: TablePlace, table: DeltaTable) -> list[tuple[LoggedFile, dict[str, Figures]]]:
    """Return all files of an open table, ordered by path, with their column statistics."""
    actions = pa.table(table.get_add_actions(flatten=False)).combine_chunks()
    keys = list(table.metadata().partition_columns)
    files = []
    texts = {}
    if keys and actions.num_rows:
        (struct,) = actions.column("partition").chunks
        texts = {key: to_log_texts(struct.field(key)).to_pylist() for key in keys}
    names = [column.name for column in read_arrow_schema(table) if column.name not in keys]
    for row in range(actions.num_rows):
        path = unquote(actions.column("path")[row].as_py())
        _check_relative(location, path)
        file = LoggedFile(path, tuple((key, texts[key][row]) for key in keys))
        files.append((file, _figures(actions, row, names)))
    return sorted(files, key=lambda entry: entry[0].path)


def read_vectors(table: DeltaTable) -> dict[str, Any]:
    """Return the deletion vectors of a table: for each file that has one, Booleans that mark the rows which remain."""
    if _VECTORS not in (table.protocol().reader_features or ()):
        return {}
    root = f"{unquote(table.table_uri).rstrip('/')}/"
    vectors = {}
    for batch in table.deletion_vectors():
        columns = pa.record_batch(batch)
        paths = columns.column("filepath").to_pylist()
        for path, remaining in zip(paths, columns.column("selection_vector"), strict=True):
            vectors[unquote(path).removeprefix("file://").removeprefix(root.removeprefix("file://"))] = remaining.values
    return vectors


def check_vectors(location: TablePlace, table: DeltaTable) -> None:
    """Raise `UnsupportedTableError` if a deletion vector deletes rows of the table."""
    for path in read_vectors(table):
        refuse_vector(location, path, "and such files are not rewritten here")


def _figures(actions: pa.Table, row: int, names: Sequence[str]) -> dict[str, Figures]:
    rows = _of_row(actions, "num_records", row)
    if rows is None or rows.as_py() is None:
        return {}
    least, greatest, nulls = (_of_row(actions, name, row) for name in ("min", "max", "null_count"))
    figures = {}
    for name in names:
        count = _field(nulls, name)
        figures[name] = Figures(
            rows.as_py(), _field(least, name), _field(greatest, name), None if count is None else count.as_py()
        )
    return figures


def _of_row(actions: pa.Table, name: str, row: int) -> pa.Scalar | None:
    return actions.column(name)[row] if name in actions.column_names else None


def _field(struct: pa.Scalar | None, name: str) -> pa.Scalar | None:
    if struct is None or not struct.is_valid or name not in struct.type.names:
        return None
    value = struct[name]
    return value if value.is_valid and not pa.types.is_nested(value.type) else None


def check_columns(location: TablePlace, columns: Sequence[tuple[str, pa.DataType]], schema: pa.Schema) -> None:
    """Raise `TableMismatchError` if the table lacks a wanted column or has it with another type."""
    lacking = [name for name, _ in columns if name not in schema.names]
    if lacking:
        raise TableMismatchError(
            f"the Delta table {location.path} has no columns {', '.join(lacking)}; it has {', '.join(schema.names)}"
        )
    for name, kind in columns:
        stored_type = schema.field(name).type
        if not is_same(stored_type, kind):
            raise TableMismatchError(
                f"column {name!r} of the Delta table {location.path} is {stored_type}, and is read as {kind}"
            )


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
    REMAINING = "rows of a file without those that its deletion vector deletes"
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


_LOGGER: Final = logging.getLogger("penstock.connectors.delta")
_CHANGE_FEED: Final = "delta.enableChangeDataFeed"
_COMMIT_TIMES: Final = "delta.enableInCommitTimestamps"
_APPEND_ONLY: Final = "delta.appendOnly"
_MAPPING: Final = "delta.columnMapping.mode"
_VECTORS: Final = "deletionVectors"
#: Supported reader features. Column mapping is rejected only if a table uses it.
_READ: Final = frozenset(
    {
        _VECTORS,
        "columnMapping",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
#: Writer features that delta-rs can commit and that the sink's files comply with.
_WRITTEN: Final = frozenset(
    {
        _VECTORS,
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
    }
)


def check_readable(scanned: Scanned, table: DeltaTable) -> None:
    """Check that a table can be read as declared.

    Args:
        scanned: the table and the columns to read.
        table: the table, open at the first version to read.

    Raises:
        UnsupportedTableError: for unsupported features; the message names them.
        TableMismatchError: for columns that the table lacks or has with another type.
        ConfigurationError: if changes should be read but the table does not record them.
    """
    location, configuration = scanned.place, table.metadata().configuration
    check_features(location, table)
    if scanned.reads_changes and configuration.get(_CHANGE_FEED) != "true":
        raise ConfigurationError(
            f"the Delta table {location.path} keeps no changes: set {_CHANGE_FEED} = true, and read changes "
            "from the version on that this makes"
        )
    check_columns(location, [(column.name, column.type) for column in scanned.columns], read_arrow_schema(table))


def check_features(location: TablePlace, table: DeltaTable) -> None:
    """Raise `UnsupportedTableError` for table features that cannot be read; the message names them."""
    _refuse(location, "read", _features(table.protocol().reader_features), _READ)
    mapping = table.metadata().configuration.get(_MAPPING, "none")
    if mapping != "none":
        raise UnsupportedTableError(
            f"the Delta table {location.path} maps columns by {mapping}, which is not read: read a copy of it"
        )


def check_writable(location: TablePlace, table: DeltaTable, is_by_key: bool) -> None:
    """Check that files can be added to a table without violating its rules.

    Args:
        location: the table's location.
        table: the open table.
        is_by_key: whether rows are also replaced and deleted.

    Raises:
        UnsupportedTableError: for features and rules that the sink does not comply with; the message names them.
    """
    path, configuration = location.path, table.metadata().configuration
    _refuse(location, "written", _features(table.protocol().writer_features), _WRITTEN)
    for key, value in configuration.items():
        if key.startswith("delta.constraints.") or (key == _MAPPING and value != "none"):
            raise UnsupportedTableError(f"the Delta table {path} has {key} = {value}, which the sink does not keep to")
    if is_by_key:
        check_vectors(location, table)  # an upsert rewrites files without them
    if is_by_key and configuration.get(_APPEND_ONLY) == "true":
        raise UnsupportedTableError(
            f"the Delta table {path} has {_APPEND_ONLY} = true, so the sink cannot replace or delete rows by key: set "
            "it to false, or write without a key"
        )
    for field in table.schema().fields:
        for key in field.metadata:
            if key.startswith(("delta.generationExpression", "delta.invariants", "delta.identity")):
                raise UnsupportedTableError(
                    f"column {field.name!r} of the Delta table {path} has {key}, which the sink does not keep to"
                )


def check_before_reading(scanned: Scanned) -> None:
    """Check like `check_readable` while planning a statement; leave an unreachable table to the job."""
    table = _open(scanned.place)
    if table is not None:
        load_start(table, scanned)
        check_readable(scanned, table)


def check_before_writing(location: TablePlace, is_by_key: bool) -> None:
    """Check like `check_writable` while planning a statement; leave a missing or unreachable table to the job."""
    table = _open(location)
    if table is not None:
        check_writable(location, table, is_by_key)


def _open(location: TablePlace) -> DeltaTable | None:
    try:
        return location.open()
    except MissingTableError:
        return None
    except OSError as error:
        _LOGGER.warning("Delta table %s could not be looked at while planning: %s", location.path, error)
        return None


def load_start(table: DeltaTable, scanned: Scanned) -> None:
    """Load the version that a bounded source reads."""
    start = scanned.start
    if scanned.interval_ms is not None:
        return
    if start.version is not None:
        table.load_as_version(start.version)
    elif start.timestamp is not None:
        if _has_commit_times(table):
            table.load_as_version(_last_until(table, scanned.place, start.timestamp))
        else:
            table.load_as_version(start.timestamp)


def load_first_version(location: TablePlace, table: DeltaTable, timestamp: str) -> None:
    """Load the version of a table that was the newest at a time."""
    table.load_as_version(_last_until(table, location, timestamp))


def first_since(table: DeltaTable, timestamp: str) -> int:
    """Return the first version at or after a time; the next version if all are older."""
    since_ms = _milliseconds(timestamp)
    versions = [version for version, time_ms in _commit_times(table) if time_ms >= since_ms]
    return min(versions, default=table.version() + 1)


def _last_until(table: DeltaTable, location: TablePlace, timestamp: str) -> int:
    times = _commit_times(table)
    versions = [version for version, time_ms in times if time_ms <= _milliseconds(timestamp)]
    if not versions:
        earliest = datetime.datetime.fromtimestamp(min(time_ms for _, time_ms in times) / 1_000, datetime.UTC)
        raise VersionError(
            f"the log of the Delta table {location.path} has no version at or before {timestamp}: its earliest is of "
            f"{earliest.isoformat()}"
        )
    return max(versions)


def _has_commit_times(table: DeltaTable) -> bool:
    return table.metadata().configuration.get(_COMMIT_TIMES) == "true"


def _commit_times(table: DeltaTable) -> list[tuple[int, float]]:
    """Return the versions and their commit times (ms), from the commits themselves if the table records times there."""
    key = "inCommitTimestamp" if _has_commit_times(table) else "timestamp"
    return [(entry["version"], entry.get(key, entry.get("timestamp", 0))) for entry in table.history()]


def _milliseconds(timestamp: str) -> float:
    moment = datetime.datetime.fromisoformat(timestamp)
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp() * 1_000


def _features(names: Iterable[str] | None) -> list[str]:
    return sorted(names or ())


def _refuse(location: TablePlace, action: str, features: Iterable[str], known: frozenset[str]) -> None:
    unknown = [feature for feature in features if feature not in known]
    if unknown:
        noun, pronoun = ("feature", "it") if len(unknown) == 1 else ("features", "them")
        raise UnsupportedTableError(
            f"the Delta table {location.path} has the table {noun} {', '.join(unknown)}, with which it cannot be "
            f"{action} "
            f"here: drop {pronoun} (ALTER TABLE … DROP FEATURE …), or use a copy of the table"
        )


class FilePruning(Protocol):
    """Selects the parts of a table that may contain wanted rows. Instances are pickled."""

    def may_have(self, figures: Mapping[str, Figures], partition: Mapping[str, pa.Scalar]) -> bool:
        """Return whether a file may contain wanted rows, by its column statistics and partition values."""
        ...

    def select_row_groups(self, file: Any) -> frozenset[int]:
        """Return the row groups of an open `pyarrow.parquet.ParquetFile` that may contain wanted rows."""
        ...
