"""The outputs of the log's changes: rows with kinds, as columns (`RowOutput`), or events (`EventOutput`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.base.errors import OperationError
from penstock.base.types import RowKind
from penstock.connectors.cdc import events
from penstock.connectors.postgres.cdc import replication, schemas
from penstock.connectors.postgres.cdc.changes import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    Columns,
    DecodedRows,
    FollowedTable,
    Output,
)
from penstock.connectors.postgres.cdc.options import ALL, FAIL, UPSERT
from penstock.connectors.postgres.cdc.position import CdcTable
from penstock.connectors.postgres.text_columns import parse_batch, parse_column, parse_texts

_INSERT, _UPDATE, _DELETE = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE
_NUMBERS: Final = frozenset({20, 21, 23})
#: Returns the current schema of a table in the catalog, by its OID; None if the table was dropped.
Describe: TypeAlias = Callable[[int], schemas.LoggedSchema | None]


def _check_identity(followed: FollowedTable, relation: replication.Relation) -> None:
    if relation.identity == "n":
        raise OperationError(
            f"table {followed.path} has REPLICA IDENTITY NOTHING, so the log does not say which rows change: "
            f"execute ALTER TABLE {followed.path} REPLICA IDENTITY DEFAULT"
        )


class Gathered(NamedTuple):
    """Collected rows beside their columns: the kind of each, the time of its transaction (µs), its table."""

    kinds: bytes
    times_us: Sequence[int]
    tables: Sequence[events.TableId]


class RowOutput(Output):
    """Collects rows with kinds, all with the same columns.

    Args:
        mode: `all` for updates with the previous row, which needs REPLICA IDENTITY FULL; `upsert` for rows by key.
        truncates: `fail` or `skip`: how to handle a TRUNCATE of a table.
        count: increments a counter.
    """

    def __init__(self, mode: str, truncates: str, count: Callable[[str, int], None]) -> None:
        self._mode = mode
        self._truncates = truncates
        self._count = count
        self.needs_old_rows = mode == ALL
        self._table: CdcTable | None = None
        self._changes: list[tuple[replication.Values, int, int, events.TableId]] = []
        #: the earlier rows, as columns
        self._parts: list[tuple[pa.RecordBatch, Gathered]] = []
        self._part_rows = 0

    @property
    def size(self) -> int:
        """See `Output`."""
        return len(self._changes) + self._part_rows

    def locate(self, followed: FollowedTable, begin: replication.Begin) -> Columns:
        """Locate the columns in the relation. Raises if a column is missing, or if rows cannot be identified."""
        relation, table = followed.relation, followed.table
        assert relation is not None
        names = [column.name for column in relation.columns]
        absent = [name for name in table.names if name not in names]
        if absent:
            raise OperationError(
                f"table {table.path} has lost column {', '.join(absent)}, or it has another name: it has "
                f"{', '.join(names)}. Read other columns, without the state of the job"
            )
        key: list[tuple[int, Callable[[str], int | str]]] = []
        for key_column in table.key:
            name = key_column.name[1:-1].replace('""', '"')
            if name not in names:
                raise OperationError(f"table {table.path} has lost column {name!r} of its primary key")
            key.append((names.index(name), key_column.value))
        if self._mode == UPSERT:
            _check_identity(followed, relation)
        indices = [names.index(name) for name in table.names]
        return Columns(indices, key, [column.is_key for column in relation.columns])

    def insert(self, followed: FollowedTable, begin: replication.Begin, new: replication.Values) -> None:
        """See `Output`."""
        self._add(followed, begin, INSERT, new)

    def update(
        self,
        followed: FollowedTable,
        begin: replication.Begin,
        old: replication.Values | None,
        new: replication.Values,
    ) -> None:
        """See `Output`."""
        if self._mode == ALL:
            if old is None:
                raise _has_no_old_rows(followed)
            self._add(followed, begin, UPDATE_BEFORE, old)
        self._add(followed, begin, UPDATE_AFTER, new)

    def delete(
        self, followed: FollowedTable, begin: replication.Begin, old: replication.Values, has_key_alone: bool
    ) -> None:
        """See `Output`."""
        self._add(followed, begin, DELETE, old)

    def check_delete(self, followed: FollowedTable, has_key_alone: bool) -> None:
        """Raise if the server did not send the previous row."""
        if self._mode == ALL and has_key_alone:
            raise _has_no_old_rows(followed)

    def truncate(self, followed: FollowedTable, begin: replication.Begin) -> None:
        """See `Output`. Raises, or counts it."""
        if self._truncates == FAIL:
            raise OperationError(
                f"table {followed.path} was truncated at {replication.lsn_text(begin.commit_lsn)}, and the log "
                "does not say which rows it had: begin without the state of the job, or set the mode of truncates to "
                "'skip' to keep them"
            )
        self._count("truncatesSkipped", 1)

    def _add(self, followed: FollowedTable, begin: replication.Begin, kind: int, values: replication.Values) -> None:
        columns = followed.columns
        assert columns is not None
        self._changes.append((columns.select(values), kind, begin.committed_us, followed.state.id))
        self._table = followed.table

    def add_together(
        self, changes: Sequence[tuple[FollowedTable, DecodedRows, Sequence[int]]], times_us: Sequence[int]
    ) -> None:
        """See `Output`."""
        self._end_part()
        batches: list[pa.RecordBatch] = []
        kinds: list[Any] = []
        sources: list[Any] = []
        tables: list[events.TableId] = []
        for followed, rows, numbers in changes:
            table, columns, chosen = followed.table, rows.columns, slice(None)
            if self._mode != ALL:
                chosen = rows.kinds != UPDATE_BEFORE
                columns = [replication.ValueRanges(starts[chosen], lengths[chosen]) for starts, lengths in columns]
            texts = [rows.buffer.read_column(values) for values in columns]
            batches.append(parse_batch(texts, table.types, table.names, table.unrepresentable))
            kinds.append(rows.kinds[chosen])
            sources.append(np.asarray(numbers)[rows.messages[chosen]])
            tables += [followed.state.id] * batches[-1].num_rows
        batch, all_kinds, all_sources = batches[0], kinds[0], sources[0]
        if len(batches) > 1:
            all_sources = np.concatenate(sources)
            order = np.argsort(all_sources, kind="stable")
            batch = pa.concat_batches(batches).take(pa.array(order))
            all_kinds, all_sources = np.concatenate(kinds)[order], all_sources[order]
            tables = [tables[index] for index in order.tolist()]
        times = np.asarray(times_us, np.int64)[all_sources].tolist()
        self._parts.append((batch, Gathered(all_kinds.tobytes(), times, tables)))
        self._part_rows += batch.num_rows

    def _end_part(self) -> None:
        """Turn the rows that were collected one by one into columns."""
        changes, table = self._changes, self._table
        if not changes:
            return
        assert table is not None
        self._changes = []
        rows, kinds, times_us, tables = zip(*changes, strict=True)
        batch = _parse(rows, table.types, table.names, table.unrepresentable)
        self._parts.append((batch, Gathered(bytes(kinds), times_us, tables)))
        self._part_rows += batch.num_rows

    def take(self) -> tuple[pa.RecordBatch, Gathered] | None:
        """Return the collected rows as columns, with their metadata; None without changes."""
        self._end_part()
        parts, self._parts, self._part_rows = self._parts, [], 0
        if len(parts) < 2:
            return parts[0] if parts else None
        batches, gathered = zip(*parts, strict=True)
        kinds, times_us, tables = zip(*gathered, strict=True)
        together = Gathered(b"".join(kinds), list(chain(*times_us)), list(chain(*tables)))
        return pa.concat_batches(batches), together


def _has_no_old_rows(followed: FollowedTable) -> OperationError:
    return OperationError(
        f"the log does not have rows of {followed.path} as they were before they changed: execute "
        f"ALTER TABLE {followed.path} REPLICA IDENTITY FULL, or read it with changelog mode 'upsert'. "
        "Changes before that stay without; where they are of no use, begin without the state of the job"
    )


def _parse(
    rows: Sequence[Sequence[replication.Value]], types: Sequence[pa.DataType], names: Sequence[str], mode: str
) -> pa.RecordBatch:
    columns: list[Any] = list(zip(*rows, strict=True))
    texts = [pa.array(column, pa.binary()).cast(pa.string()) for column in columns]
    return parse_batch(texts, types, names, mode)


def parse_rows(
    rows: Sequence[Sequence[replication.Value]], types: Sequence[pa.DataType], names: Sequence[str], mode: str
) -> list[tuple[Any, ...]]:
    """Return rows of texts as tuples of the Python values that `to_values` returns for columns."""
    columns = []
    for values, kind, name in zip(zip(*rows, strict=True), types, names, strict=True):
        texts = [None if value is None else value.decode() for value in values]
        columns.append(_parse_values(texts, kind, name, mode))
    return list(zip(*columns, strict=True))


def _parse_values(texts: Sequence[str | None], kind: pa.DataType, name: str, mode: str) -> list[Any]:
    values = parse_texts(texts, kind)
    if values is None:  # a type, or a value, that needs more care
        values = parse_column(pa.array(texts, pa.string()), kind, name, mode).to_pylist()
    return values


def to_values(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Return the rows of a batch as tuples of Python values."""
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


@dataclass(slots=True)
class _Version:
    """The rows of a table that have the same columns."""

    schema: events.TableSchema
    rows: list[list[replication.Value]] = field(default_factory=list)
    values: list[tuple[Any, ...]] = field(default_factory=list)


class _Change(NamedTuple):
    """An event of a row whose values are still text: the positions of its rows in its version."""

    table_id: events.TableId
    version: _Version
    kind: RowKind
    before: int | None
    after: int | None
    meta: Mapping[str, Any]


class EventOutput(Output):
    """Collects events of rows and of schemas, in the order of the log.

    Args:
        unrepresentable: how to read values that a type cannot hold, see `text_columns`.
        describe: returns the schema that the catalog has of a table now.
        name_type: returns the name of a type by its OID.
    """

    may_read_rows_again = True

    def __init__(self, unrepresentable: str, describe: Describe, name_type: Callable[[int], str]) -> None:
        self._unrepresentable = unrepresentable
        self._describe = describe
        self._name_type = name_type
        self._entries: list[events.Event | _Change] = []
        self._versions: dict[int, _Version] = {}
        self._begin: replication.Begin | None = None
        self._meta: Mapping[str, Any] = {}

    @property
    def size(self) -> int:
        """See `Output`."""
        return len(self._entries)

    def locate(self, followed: FollowedTable, begin: replication.Begin) -> Columns | None:
        """Compare the columns of the log with the schema, and collect the events that lead from one to the other.

        The log may have columns from before the table was described. Such changes are contained in the rows: a change
        of a schema waits for the transactions that change rows, and the rows were read after it.
        """
        relation, logged = followed.relation, followed.state.logged
        assert relation is not None
        _check_identity(followed, relation)
        told = schemas.read_relation(relation, logged, self._name_type)
        if logged is None:
            catalog = self._describe(relation.oid)
            schema = told.schema
            if catalog is not None:
                kept = tuple(name for name in catalog.schema.primary_key if name in schema.names)
                schema = replace(schema, primary_key=kept)
            self._adopt(followed, replace(told, schema=schema))
            self._entries.append(events.CreateTableEvent(followed.state.id, schema))
        elif not told.is_like(logged):
            if followed.seen is not None and begin.commit_lsn <= logged.lsn:
                return None
            catalog = self._describe(relation.oid)
            self._follow(followed, catalog if catalog is not None and catalog.is_like(told) else told, logged.lsn)
        logged = followed.state.logged
        assert logged is not None
        names = [column.name for column in relation.columns]
        attributes = dict(zip(logged.schema.names, logged.attributes, strict=True))
        key: list[tuple[int, Callable[[str], int | str]]] = [
            (names.index(name), int if attributes[name].type_oid in _NUMBERS else str)
            for name in logged.schema.primary_key
        ]
        positions = [names.index(name) for name in logged.schema.names]
        return Columns(positions, key, [column.is_key for column in relation.columns])

    def adopt(self, followed: FollowedTable, catalog: schemas.LoggedSchema) -> None:
        """Collect the events that lead to the schema of the catalog, which rows have from now on."""
        self._follow(followed, catalog, catalog.lsn)

    def _follow(self, followed: FollowedTable, following: schemas.LoggedSchema, lsn: int) -> None:
        logged = followed.state.logged
        assert logged is not None
        changes, schema = schemas.find_changes(followed.state.id, logged, following)
        if followed.seen is not None and len(schema.schema.primary_key) != len(logged.schema.primary_key):
            raise OperationError(
                f"table {followed.path} got another primary key while its rows were read: begin without the state of "
                "the job"
            )
        self._entries += changes
        self._adopt(followed, replace(schema, lsn=lsn))

    def _adopt(self, followed: FollowedTable, logged: schemas.LoggedSchema) -> None:
        followed.state = replace(followed.state, logged=logged)
        self._versions.pop(followed.state.oid, None)

    def insert(self, followed: FollowedTable, begin: replication.Begin, new: replication.Values) -> None:
        """See `Output`."""
        self._add(followed, begin, _INSERT, None, new)

    def update(
        self,
        followed: FollowedTable,
        begin: replication.Begin,
        old: replication.Values | None,
        new: replication.Values,
    ) -> None:
        """See `Output`."""
        self._add(followed, begin, _UPDATE, old, new)

    def delete(
        self, followed: FollowedTable, begin: replication.Begin, old: replication.Values, has_key_alone: bool
    ) -> None:
        """See `Output`."""
        self._add(followed, begin, _DELETE, old, None)

    def truncate(self, followed: FollowedTable, begin: replication.Begin) -> None:
        """See `Output`."""
        self._entries.append(events.TruncateTableEvent(followed.state.id))

    def _add(
        self,
        followed: FollowedTable,
        begin: replication.Begin,
        kind: RowKind,
        before: replication.Values | None,
        after: replication.Values | None,
    ) -> None:
        state, columns = followed.state, followed.columns
        assert columns is not None
        version = self._versions.get(state.oid)
        if version is None:
            assert state.logged is not None
            version = self._versions[state.oid] = _Version(state.logged.schema)
        if begin != self._begin:
            self._begin, self._meta = begin, {"op_ts": begin.committed_us // 1_000}
        rows = version.rows
        first = second = None
        if before is not None:
            first = len(rows)
            rows.append(columns.select(before))
        if after is not None:
            second = len(rows)
            rows.append(columns.select(after))
        self._entries.append(_Change(state.id, version, kind, first, second, self._meta))

    def add_together(
        self, changes: Sequence[tuple[FollowedTable, DecodedRows, Sequence[int]]], times_us: Sequence[int]
    ) -> None:
        """See `Output`."""
        metas: list[Mapping[str, Any]] = []
        last_us, meta = -1, {"op_ts": 0}
        for time_us in times_us:
            if time_us != last_us:
                last_us, meta = time_us, {"op_ts": time_us // 1_000}
            metas.append(meta)
        if len(changes) == 1:
            self._entries += self._build_events(*changes[0], metas)
            return
        entries: list[events.Event | None] = [None] * len(times_us)
        for followed, rows, numbers in changes:
            for number, event in zip(numbers, self._build_events(followed, rows, numbers, metas), strict=True):
                entries[number] = event
        self._entries += [entry for entry in entries if entry is not None]

    def _build_events(
        self, followed: FollowedTable, rows: DecodedRows, numbers: Sequence[int], metas: Sequence[Mapping[str, Any]]
    ) -> list[events.DataChangeEvent]:
        """Return the events of changes that were decoded together, one for each message."""
        state, make, mode = followed.state, events.DataChangeEvent, self._unrepresentable
        assert state.logged is not None
        columns = [
            _parse_values(rows.buffer.read_texts(values), column.type, column.name, mode)
            for values, column in zip(rows.columns, state.logged.schema.columns, strict=True)
        ]
        table_id, before = state.id, None
        built = []
        for row, kind, message in zip(
            zip(*columns, strict=True), rows.kinds.tolist(), rows.messages.tolist(), strict=True
        ):
            if kind == UPDATE_BEFORE:
                before = row
            elif kind == UPDATE_AFTER:
                built.append(make(table_id, _UPDATE, before, row, metas[numbers[message]]))
                before = None
            elif kind == INSERT:
                built.append(make(table_id, _INSERT, None, row, metas[numbers[message]]))
            else:
                built.append(make(table_id, _DELETE, row, None, metas[numbers[message]]))
        return built

    def take(self) -> list[events.Event]:
        """Return the collected events."""
        entries, self._entries = self._entries, []
        self._versions = {}
        complete: list[events.Event] = []
        for entry in entries:
            if not isinstance(entry, _Change):
                complete.append(entry)
                continue
            table_id, version, kind, first, second, meta = entry
            if version.rows:
                schema = version.schema
                types = [column.type for column in schema.columns]
                version.values = parse_rows(version.rows, types, schema.names, self._unrepresentable)
                version.rows = []
            values = version.values
            before = None if first is None else values[first]
            after = None if second is None else values[second]
            complete.append(events.DataChangeEvent(table_id, kind, before, after, meta))
        return complete
