"""The schemas of tables as the catalog and the log describe them, and the events that lead from one to the next.

**Schemas in the log.** A Relation message has the names and types of a table's columns. It comes before the first row
with these columns, so the log shows a schema change once a row follows. It lacks the column numbers that identify the
columns in the catalog. If the catalog still has the columns of the message, the numbers are taken from
there, and the events are exact. If the table has changed again since, `match_columns` infers which columns are the
same: a new name before a column that has stayed is a renamed one, because a table gets new columns at its end. At the
end of a table, a rename looks the same as a drop and an addition: with the same type the column counts as renamed, with
another type as dropped and added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.connectors.cdc import events
from penstock.connectors.postgres.cdc.replication import Relation, parse_lsn
from penstock.connectors.postgres.text_columns import digits_of_numeric, to_arrow_type

if TYPE_CHECKING:
    import psycopg

#: The names of the server's own types by OID; all others are looked up in the catalog.
_BUILT_IN: Final[dict[int, str]] = {
    16: "bool", 17: "bytea", 20: "int8", 21: "int2", 23: "int4", 25: "text", 26: "oid", 114: "json", 700: "float4",
    701: "float8", 1042: "bpchar", 1043: "varchar", 1082: "date", 1083: "time", 1114: "timestamp", 1184: "timestamptz",
    1266: "timetz", 1700: "numeric", 2950: "uuid", 3802: "jsonb", 1000: "_bool", 1001: "_bytea", 1005: "_int2",
    1007: "_int4", 1009: "_text", 1014: "_bpchar", 1015: "_varchar", 1016: "_int8", 1021: "_float4", 1022: "_float8",
    1115: "_timestamp", 1182: "_date", 1183: "_time", 1185: "_timestamptz", 1231: "_numeric", 2951: "_uuid",
}  # fmt: skip
_SQL: Final = {
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int4": "INT",
    "int8": "BIGINT",
    "oid": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "date": "DATE",
    "time": "TIME(6)",
    "timestamp": "TIMESTAMP(6)",
    "timestamptz": "TIMESTAMP_LTZ(6)",
    "bytea": "BYTES",
    "vector": "ARRAY<FLOAT>",
    "halfvec": "ARRAY<FLOAT>",
}
_HEADER: Final = 4
_DIGITS_MAX: Final = 38
_COLUMNS: Final = """
    SELECT a.attname, a.attnum, a.atttypid, a.atttypmod, t.typname, a.attnotnull, a.attgenerated <> '',
           col_description(a.attrelid, a.attnum), pg_get_expr(d.adbin, d.adrelid),
           coalesce(array_position(i.indkey::int2[], a.attnum), -1), obj_description(a.attrelid, 'pg_class'),
           pg_current_wal_insert_lsn()::text
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_TEMPORARY: Final = "__renamed_{}"


class Attribute(NamedTuple):
    """A column of the server: its number in the catalog (0 if it is unknown), and the OID and modifier of its type."""

    number: int
    type_oid: int
    modifier: int


@dataclass(frozen=True, slots=True)
class LoggedSchema:
    """The schema of a table at a position of the log.

    Attributes:
        schema: the columns that the log has.
        attributes: the server's column numbers.
        computed: the names of generated columns, which are not part of the schema.
        lsn: the position of the log at the time of the description; 0 for a schema from the log itself.
    """

    schema: events.TableSchema
    attributes: tuple[Attribute, ...]
    computed: frozenset[str] = frozenset()
    lsn: int = 0

    def is_like(self, other: LoggedSchema) -> bool:
        """Return whether both have the same columns; comments, defaults and keys do not matter."""
        return self.schema.names == other.schema.names and all(
            mine[1:] == others[1:] and (mine.number == others.number or not (mine.number and others.number))
            for mine, others in zip(self.attributes, other.attributes, strict=True)
        )


def to_sql_type(name: str, modifier: int) -> str:
    """Return the type in Flink's SQL for a type of the server; STRING for a type without an equivalent."""
    if name.startswith("_"):
        return f"ARRAY<{to_sql_type(name[1:], modifier)}>"
    if name == "numeric":
        digits, scale = (_DIGITS_MAX, 18) if modifier < 0 else digits_of_numeric(modifier)
        return f"DECIMAL({digits}, {scale})" if digits <= _DIGITS_MAX and 0 <= scale <= digits else "STRING"
    if name in ("varchar", "bpchar") and modifier > _HEADER:
        return f"{'VARCHAR' if name == 'varchar' else 'CHAR'}({modifier - _HEADER})"
    return _SQL.get(name, "STRING")


def describe(connection: psycopg.Connection[Any], oid: int) -> LoggedSchema | None:
    """Read the schema of a table from the catalog; return None if the table no longer exists."""
    rows = connection.execute(_COLUMNS, (oid,)).fetchall()
    if not rows:
        return None
    columns, attributes, key, computed = [], [], [], []
    for name, number, type_oid, modifier, type_name, is_needed, is_generated, comment, default, part, _, _ in rows:
        if is_generated:
            computed.append(name)
            continue
        kind, sql_type = to_arrow_type(type_name, modifier), to_sql_type(type_name, modifier)
        columns.append(events.Column(name, kind, sql_type, not is_needed, comment, default))
        attributes.append(Attribute(number, type_oid, modifier))
        if part >= 0:
            key.append((part, name))
    schema = events.TableSchema(tuple(columns), tuple(name for _, name in sorted(key)), rows[0][10])
    return LoggedSchema(schema, tuple(attributes), frozenset(computed), parse_lsn(rows[0][11]))


def read_relation(relation: Relation, current: LoggedSchema | None, name_type: Callable[[int], str]) -> LoggedSchema:
    """Return the schema of a Relation message. Its key is the current key, if the message has these columns."""
    computed = frozenset[str]() if current is None else current.computed
    kept = [column for column in relation.columns if column.name not in computed]
    columns = []
    for column in kept:
        name = _BUILT_IN.get(column.type_oid) or name_type(column.type_oid)
        columns.append(
            events.Column(column.name, to_arrow_type(name, column.modifier), to_sql_type(name, column.modifier))
        )
    names = {column.name for column in kept}
    key = () if current is None else tuple(name for name in current.schema.primary_key if name in names)
    attributes = tuple(Attribute(0, column.type_oid, column.modifier) for column in kept)
    return LoggedSchema(events.TableSchema(tuple(columns), key), attributes, computed)


def match_columns(before: LoggedSchema, after: LoggedSchema) -> list[int | None]:
    """Return for each column after a change which column before it is the same; None for an added one."""
    if all(attribute.number for attribute in (*before.attributes, *after.attributes)):
        index_of = {attribute.number: index for index, attribute in enumerate(before.attributes)}
        return [index_of.get(attribute.number) for attribute in after.attributes]
    matches = _match_names(before.schema.names, after.schema.names)
    missing = [index for index in range(len(before.attributes)) if index not in set(matches)]
    for position, match in enumerate(matches):
        if match is not None:
            continue
        low = max((index for index in matches[:position] if index is not None), default=-1)
        high = next((index for index in matches[position:] if index is not None), None)
        between = [index for index in missing if low < index < (len(before.attributes) if high is None else high)]
        alike = [index for index in between if before.attributes[index][1:] == after.attributes[position][1:]]
        chosen = alike or ([] if high is None else between)
        if chosen:
            matches[position] = chosen[0]
            missing.remove(chosen[0])
    return matches


def _match_names(before: Sequence[str], after: Sequence[str]) -> list[int | None]:
    """Match columns of the same name, as many as possible in the order of both."""
    index_of = {name: index for index, name in enumerate(before)}
    best: list[list[tuple[int, int]]] = []
    for position, name in enumerate(after):
        index = index_of.get(name)
        if index is None:
            continue
        chain = max((other for other in best if other[-1][1] < index), key=len, default=[])
        best.append([*chain, (position, index)])
    matches: list[int | None] = [None] * len(after)
    for position, index in max(best, key=len, default=[]):
        matches[position] = index
    return matches


def find_changes(
    table_id: events.TableId, before: LoggedSchema, after: LoggedSchema
) -> tuple[list[events.SchemaChangeEvent], LoggedSchema]:
    """Return the events that lead from one schema to the next, and the next schema with the known column details."""
    matches = match_columns(before, after)
    is_described = bool(after.lsn)  # only the catalog knows about NULL, defaults and comments
    changes: list[events.SchemaChangeEvent] = [
        events.DropColumnEvent(table_id, name) for index, name in enumerate(before.schema.names) if index not in matches
    ]
    pairs = [(position, index) for position, index in enumerate(matches) if index is not None]
    changes += _rename(
        table_id, [(before.schema.names[index], after.schema.names[position]) for position, index in pairs]
    )
    columns, attributes = list(after.schema.columns), list(after.attributes)
    for position, index in pairs:
        was, column = before.schema.columns[index], columns[position]
        if not is_described:
            column = replace(column, is_nullable=was.is_nullable, comment=was.comment, default=was.default)
        if before.attributes[index][1:] != attributes[position][1:]:
            changes.append(events.AlterColumnTypeEvent(table_id, column))
        columns[position] = column
        attributes[position] = attributes[position]._replace(
            number=attributes[position].number or before.attributes[index].number
        )
    changes += [
        events.AddColumnEvent(table_id, column) for column, index in zip(columns, matches, strict=True) if index is None
    ]
    key, comment = after.schema.primary_key, after.schema.comment
    if not is_described:
        names = {before.schema.names[index]: after.schema.names[position] for position, index in pairs}
        key = tuple(names[name] for name in before.schema.primary_key if name in names)
        comment = before.schema.comment
    schema = events.TableSchema(tuple(columns), key, comment)
    return changes, replace(after, schema=schema, attributes=tuple(attributes))


def _rename(table_id: events.TableId, pairs: list[tuple[str, str]]) -> list[events.SchemaChangeEvent]:
    """Return the renames in an order without duplicate names; columns that swap names use a temporary name."""
    changes: list[events.SchemaChangeEvent] = []
    used = {old for old, _ in pairs}
    left = [(old, new) for old, new in pairs if old != new]
    while left:
        free = next((pair for pair in left if pair[1] not in used), None)
        if free is None:
            old, new = left.pop(0)
            detour = _TEMPORARY.format(old)
            left.append((detour, new))
            free = (old, detour)
        else:
            left.remove(free)
        used = (used - {free[0]}) | {free[1]}
        changes.append(events.RenameColumnEvent(table_id, *free))
    return changes
