"""Plans table sinks: which constraints are checked, and what happens to rows that share a primary key.

A sink that writes by key is correct if the query has at most one row per key at any time, that is, if the key's columns
identify the rows of the query. Otherwise several rows of the query share a row of the table, and ON CONFLICT determines
which of them stays.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from penstock.plan.transformation import Upstream
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DecimalType
from penstock.sql.logical.nodes import INSERTS, Changes, Node, RowSchema, Scan, WatermarkAssigner, Write
from penstock.sql.logical.properties import all_nodes, collect_expressions
from penstock.sql.stream.changelog.plan import deleted_by_key
from penstock.sql.stream.planning.options import Optimization, SinkOptions
from penstock.sql.stream.planning.rule import Factory, Planning, Stream, by_columns, differ_in_parallelism, name_columns
from penstock.sql.stream.planning.table_options import read_parallelism
from penstock.sql.stream.planning.upsert_keys import Keys
from penstock.sql.stream.rows.state_ttl import lasting
from penstock.sql.stream.sinks.constraints import ConstraintOperator, collect_constraints
from penstock.sql.stream.sinks.upserts import FirstUpsertOperator, LastUpsertOperator
from penstock.sql.tables.tables import TableWriter
from penstock.sql.typed import Constant, FunctionCall


def written(write: Write, writer: TableWriter, planning: Planning) -> tuple[Upstream, ...]:
    """Return the columns to write to a table. Raises `ValidationError` for changes that the sink does not accept."""
    title, options = ".".join(write.path), planning.options.sinks
    node, key = write.input, write.key
    changes = planning.changes(node)
    planning.accept(f"Table sink '{title}'", node, writer.accepts)
    materialize = _materialize(write, writer, options, planning)
    keys = planning.upsert_keys.of(node)
    deletes_by_key = writer.deletes_by_key and planning.options.allows(Optimization.KEYED_DELETIONS)
    if deletes_by_key and not materialize and frozenset(key) in keys:
        planning.by_key = deleted_by_key(node, planning)
    # A row may move to another primary key if the query replaces rows by other columns, or by only some columns of the
    # key. Then the sink needs UPDATE_BEFORE.
    is_by_other_key = bool(key) and frozenset(key) not in keys
    wants_before = (writer.wants_before or is_by_other_key) and Changes.UPDATE in changes
    stream = checked(planning.stream(node, wants_before), write.schema, planning)
    if materialize:
        own = min(map(sorted, keys), key=len, default=None)
        stream = replace(stream, upstreams=_materialized(write, stream, own, planning))
    if key and _goes_by_key(write, stream, options, materialize):
        return tuple(by_columns(stream, key))
    return stream.upstreams


def _goes_by_key(write: Write, stream: Stream, options: SinkOptions, is_materialized: bool) -> bool:
    """Return whether rows are partitioned by the primary key for the sink's subtasks.

    With AUTO they are if rows would otherwise be distributed round-robin, such as from one subtask to several: then an
    older row of a key could be written after a newer one.
    """
    if options.shuffle != "AUTO":
        return options.shuffle == "FORCE" and not is_materialized
    parallelism = read_parallelism(write)
    if parallelism is not None:
        return parallelism > 1
    return stream.changes == INSERTS and differ_in_parallelism(stream.upstreams)


def may_overflow(query: Node) -> bool:
    """Return whether a NOT NULL column of a query may be NULL because a decimal has too many digits for its type."""
    if not any(isinstance(column.type, DecimalType) and not column.type.is_nullable for column in query.schema):
        return False
    expressions = [
        part for node in all_nodes(query) for expression in collect_expressions(node) for part in expression.walk()
    ]
    return any(
        isinstance(part.type, DecimalType)
        and (isinstance(part, FunctionCall) or (isinstance(part, Constant) and part.value is None))
        for part in expressions
    )


def checked(stream: Stream, schema: RowSchema, planning: Planning) -> Stream:
    """Return a stream whose values satisfy the constraints of the columns that they are written to."""
    options = planning.options.sinks
    checks = collect_constraints(schema, options.nested, options.length)
    if not checks:
        return stream
    operator = partial(ConstraintOperator, checks, options.drops_null, options.length)
    upstreams = planning.step("Constraint Enforcer", operator, stream.upstreams, stream.changes != INSERTS)
    return Stream(upstreams, stream.schema, stream.changes, stream.has_before)


def _materialized(write: Write, stream: Stream, own: list[int] | None, planning: Planning) -> tuple[Upstream, ...]:
    common = (write.key, own, write.input.schema.types, name_columns(write.input.schema))
    operator: Factory
    if write.conflict in ("ERROR", "NOTHING"):
        names = [write.schema[index].name for index in write.key]
        operator = partial(FirstUpsertOperator, *common, names, write.conflict == "ERROR")
    else:
        operator = lasting(partial(LastUpsertOperator, *common), planning.options.state_ttl_ms)
    inputs = by_columns(stream, write.key)
    return planning.step("Sink Materializer", operator, inputs, is_stateful=True)


def _materialize(write: Write, writer: TableWriter, options: SinkOptions, planning: Planning) -> bool:
    """Return whether a step determines which of the rows of a key is written."""
    title = ".".join(write.path)
    changes = planning.changes(write.input)
    is_append = writer.accepts == INSERTS or (writer.follows_query and changes == INSERTS)
    is_retract = writer.wants_before and not writer.takes_either
    if write.conflict is not None:
        _check_conflict(write, is_append, is_retract, writer)
    if not write.key or is_append or is_retract:
        return False
    if options.materialize != "AUTO":
        return options.materialize == "FORCE"
    if changes == INSERTS and write.conflict == "DEDUPLICATE":
        return False
    keys = planning.upsert_keys.of(write.input)
    if any(key <= set(write.key) for key in keys):
        return False
    if write.conflict is None and options.requires_on_conflict:
        names = write.input.schema.names
        actual = " or ".join(sorted(f"[{', '.join(names[index] for index in sorted(key))}]" for key in keys)) or "none"
        raise ValidationError(
            f"The query has an upsert key that differs from the primary key of the sink table '{title}'. Primary key: "
            f"[{', '.join(write.schema.names[index] for index in write.key)}], upsert key: {actual}. This can lead to "
            "non-deterministic results when multiple records with different upsert keys map to the same primary key. "
            "Please specify an ON CONFLICT clause to define how conflicts should be handled: ON CONFLICT DO "
            "DEDUPLICATE (update to the latest record, state intensive, since we need to keep the entire history), or "
            "ON CONFLICT DO ERROR (fail on conflict), or ON CONFLICT DO NOTHING (keep first record). "
            f"{_cheap_remedies(write, keys)}"
        )
    return True


def _cheap_remedies(write: Write, keys: Keys) -> str:
    """Return advice on avoiding conflicts without keeping all rows in state."""
    names, key = write.schema.names, [write.schema.names[index] for index in write.key]
    remedies = []
    own = min(map(sorted, keys), key=len, default=None)
    if own is not None:
        declared = ", ".join(names[index] for index in own)
        remedies.append(f"declare PRIMARY KEY ({declared}) NOT ENFORCED on the table, by which the query's rows differ")
    remedies.append(f"let the query have one row for each ({', '.join(key)}), such as by GROUP BY")
    remedies.append(
        "if you know that it has, set 'table.exec.sink.upsert-materialize' = 'NONE', which writes rows as they come"
    )
    return f"Remedies that keep no state: {'; '.join(remedies)}."


def _check_conflict(write: Write, is_append: bool, is_retract: bool, writer: TableWriter) -> None:
    """Raise `ValidationError` if ON CONFLICT is not allowed, by the rules of Flink 2.3."""
    title = ".".join(write.path)
    # A table that accepts any changes also accepts the clause without a key, where it has no effect.
    lacks_key = not write.key and not writer.follows_query
    if is_append or is_retract or lacks_key:
        if is_append:
            reason = "it only accepts INSERT (append-only) changes"
        else:
            reason = "it requires UPDATE_BEFORE (retract mode)" if is_retract else "it has no primary key"
        raise ValidationError(
            f"ON CONFLICT clause is only allowed for upsert sinks. The sink '{title}' is not an upsert sink because "
            f"{reason}."
        )
    missing = [] if write.conflict == "DEDUPLICATE" else sorted(set(_without_watermarks(write.input)))
    if missing:
        raise ValidationError(
            f"ON CONFLICT DO {write.conflict} requires all source tables to define watermarks, but the following "
            f"source(s) do not: {', '.join(missing)}. Please add a WATERMARK declaration to these tables."
        )


def _without_watermarks(node: Node) -> list[str]:
    if isinstance(node, Scan):
        return [".".join(node.path)]
    if isinstance(node, WatermarkAssigner):
        return []
    return [title for part in node.inputs() for title in _without_watermarks(part)]
