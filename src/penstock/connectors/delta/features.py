"""Decides which tables can be read and written, by the features of their protocol.

Reader features change how files are interpreted, and writer features define rules for new files. An unknown feature is
rejected by name, because ignoring it would produce wrong rows.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from penstock.base.errors import ConfigurationError
from penstock.connectors.delta.errors import MissingTableError, UnsupportedTableError, VersionError
from penstock.connectors.delta.log import check_columns, check_vectors
from penstock.connectors.delta.place import TablePlace, read_arrow_schema
from penstock.connectors.delta.split import Scanned

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LOG: Final = logging.getLogger("penstock.connectors.delta")
_CHANGE_FEED: Final = "delta.enableChangeDataFeed"
_COMMIT_TIMES: Final = "delta.enableInCommitTimestamps"
_APPEND_ONLY: Final = "delta.appendOnly"
_MAPPING: Final = "delta.columnMapping.mode"
_VECTORS: Final = "deletionVectors"
#: Supported reader features. Deletion vectors and column mapping are rejected only if a table uses them.
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
    check_vectors(location, table)
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
        _LOG.warning("Delta table %s could not be looked at while planning: %s", location.path, error)
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
