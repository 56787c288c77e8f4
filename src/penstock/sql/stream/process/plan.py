"""Plans process table functions: the changes that arrive and leave, and the steps of a call."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from penstock.base.types import RowKind
from penstock.plan.transformation import Upstream
from penstock.sql.analyzer.process_tables import semantics
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import RowType
from penstock.sql.logical.nodes import INSERTS, Changes, ProcessTableFunction, TimeAttribute
from penstock.sql.logical.records import ChangelogMode
from penstock.sql.stream.planning.rule import Planning, Rule, Stream, by_columns, name_columns
from penstock.sql.stream.process.calls import InputTable, ProcessCall
from penstock.sql.stream.process.operator import KeyedProcessOperator, ProcessOperator
from penstock.sql.user_functions.process import ArgumentTrait, ChangelogContext
from penstock.sql.user_functions.signature import ProcessTableFunctionArgument

_CONSUMER = "StreamPhysicalProcessTableFunction"


class ProcessRule(Rule[ProcessTableFunction]):
    """See the docstring of the package."""

    nodes = (ProcessTableFunction,)

    def changes(self, node: ProcessTableFunction, planning: Planning) -> Changes:
        """See `Rule`."""
        for argument, part in _inputs(node):
            if not argument.has(ArgumentTrait.SUPPORT_UPDATES):
                planning.accept(_CONSUMER, part, INSERTS)
        mode = _mode(node, planning, ChangelogMode.all())
        _check(node, planning, mode)
        return _to_changes(mode)

    def asks_before(self, node: ProcessTableFunction, planning: Planning, wants_before: bool) -> bool:
        """Return whether a table must bring the previous rows of updates."""
        return any(_asks_before(node, index, planning) for index in range(len(node.tables)))

    def stream(self, node: ProcessTableFunction, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        mode = _mode(node, planning, ChangelogMode.all() if wants_before else ChangelogMode.upsert())
        changes = _to_changes(mode)
        inputs: list[Upstream] = []
        is_keyed = any(argument.has(ArgumentTrait.SET_SEMANTIC_TABLE) for argument in node.user.signature.tables())
        known = list(_inputs(node))
        for index, part in enumerate(node.parts):
            if not node.tables:
                inputs += planning.stream(part, False).upstreams
                continue
            asks = _asks_before(node, index, planning)
            before = planning.by_key
            if planning.updates(part) and not asks and not known[index][0].has(ArgumentTrait.REQUIRE_FULL_DELETE):
                planning.by_key = before | planning.deleted_by_key(part)
            inner = planning.stream(part, asks)
            planning.by_key = before
            reads = by_columns(inner, node.tables[index].partition) if is_keyed else inner.upstreams
            inputs += [replace(upstream, input_index=index) for upstream in reads]
        operator = partial(
            KeyedProcessOperator if is_keyed else ProcessOperator,
            _call(node, planning, mode),
            name_columns(node.schema),
            planning.session,
        )
        is_alone = is_keyed and not node.tables[0].partition
        upstreams = planning.step(
            "Process Table Function",
            operator,
            inputs,
            are_changes=any(planning.updates(part) for part in node.parts),
            is_stateful=is_keyed,
            parallelism_limit=1 if is_alone else None,
            uid=node.uid,
            name=node.function,
        )
        stream = Stream(tuple(upstreams), node.schema, changes, mode.contains(RowKind.UPDATE_BEFORE))
        if Changes.UPDATE not in changes or stream.has_before or not wants_before:
            return stream
        return planning.with_before(stream, range(node.prefix))


def is_by_key(node: ProcessTableFunction, planning: Planning) -> bool:
    """Return whether a function updates rows without their previous ones, so that the partition is their key."""
    mode = _mode(node, planning, ChangelogMode.upsert())
    return mode.contains(RowKind.UPDATE_AFTER) and not mode.contains(RowKind.UPDATE_BEFORE)


def _inputs(node: ProcessTableFunction) -> zip[tuple[ProcessTableFunctionArgument, Any]]:
    return zip(node.user.signature.tables(), node.parts, strict=False)


def _asks_before(node: ProcessTableFunction, index: int, planning: Planning) -> bool:
    """Return whether updates of a table must include the previous row."""
    part, argument = node.parts[index], node.user.signature.tables()[index]
    if not planning.updates(part):
        return False
    partition = frozenset(node.tables[index].partition)
    is_upsert = bool(partition) and partition in planning.upsert_keys.of(part)
    return argument.has(ArgumentTrait.REQUIRE_UPDATE_BEFORE) or not is_upsert


def _input_mode(node: ProcessTableFunction, index: int, planning: Planning) -> ChangelogMode:
    changes = planning.changes(node.parts[index])
    kinds = {RowKind.INSERT}
    if Changes.UPDATE in changes:
        kinds.add(RowKind.UPDATE_AFTER)
        if _asks_before(node, index, planning):
            kinds.add(RowKind.UPDATE_BEFORE)
    if Changes.DELETE in changes:
        kinds.add(RowKind.DELETE)
    return ChangelogMode(frozenset(kinds))


def _mode(node: ProcessTableFunction, planning: Planning, required: ChangelogMode) -> ChangelogMode:
    """Return the kinds of changes that a function emits."""
    by_name = {table.name: _input_mode(node, index, planning) for index, table in enumerate(node.tables)}
    modes = tuple(by_name.get(argument.name) for argument in node.user.signature.arguments)
    mode = node.user.find_changelog_mode(ChangelogContext(modes, required))
    if mode is None:
        return ChangelogMode.insert_only()
    if not isinstance(mode, ChangelogMode):
        raise ValidationError(f"get_changelog_mode() of {node.user} returns a ChangelogMode, not {mode!r}")
    return mode


def _to_changes(mode: ChangelogMode) -> Changes:
    changes = INSERTS
    if mode.contains(RowKind.UPDATE_AFTER):
        changes |= Changes.UPDATE
    if mode.contains(RowKind.DELETE):
        changes |= Changes.DELETE
    return changes


def _check(node: ProcessTableFunction, planning: Planning, mode: ChangelogMode) -> None:
    """Raise `ValidationError` for times and columns that updates do not have."""
    is_append = mode.contains_only(RowKind.INSERT)
    arguments = node.user.signature.tables()
    if not is_append and not mode.contains(RowKind.UPDATE_BEFORE):
        for argument in arguments:
            if argument.has(ArgumentTrait.ROW_SEMANTIC_TABLE):
                raise ValidationError(
                    "PTFs that take table arguments with row semantics don't support upsert output. Table argument "
                    f"'{argument.name}' of function '{node.function}' must use set semantics."
                )
    if not is_append and any(argument.has(ArgumentTrait.PASS_COLUMNS_THROUGH) for argument in arguments):
        raise ValidationError("Pass-through columns are not supported for PTFs that produce updates.")
    if node.has_rowtime and (not is_append or any(planning.changes(part) != INSERTS for part in node.parts)):
        raise ValidationError(
            "Time operations using the `on_time` argument are currently not supported for PTFs that consume or produce "
            "updates."
        )
    for part, table in zip(node.parts, node.tables, strict=False):
        column = part.schema[table.time] if table.time >= 0 else None
        if column is not None and column.time is not TimeAttribute.ROWTIME:
            raise ValidationError(
                f"Column '{column.name}' is not a valid time attribute. Only columns with a watermark declaration "
                "qualify for the `on_time` argument. Also, make sure that the watermarked column is forwarded without "
                "any modification."
            )
        first = part.schema[table.order[0].index] if table.order else None
        if first is not None and first.time is not TimeAttribute.ROWTIME:
            raise ValidationError(
                f"Invalid ORDER BY clause for table argument '{table.name}'. The first ORDER BY column '{first.name}' "
                "is not a valid time attribute. Only columns with a watermark declaration qualify for ORDER BY. Also, "
                "make sure that the watermarked column is forwarded without any modification."
            )


def _call(node: ProcessTableFunction, planning: Planning, mode: ChangelogMode) -> ProcessCall:
    arguments = {argument.name: argument for argument in node.user.signature.tables()}
    tables = []
    for index, (part, table) in enumerate(zip(node.parts, node.tables, strict=False)):
        argument = arguments[table.name]
        prefix: tuple[int, ...] = ()
        if argument.has(ArgumentTrait.PASS_COLUMNS_THROUGH):
            prefix = tuple(range(len(part.schema)))
        elif argument.has(ArgumentTrait.SET_SEMANTIC_TABLE):
            prefix = table.partition * len(node.tables)
        typed = argument.data_type
        tables.append(
            InputTable(
                table.name,
                tuple(typed.field_names() if isinstance(typed, RowType) else table.names),
                tuple(part.schema.types),
                semantics(part, table, _input_mode(node, index, planning)),
                table.partition,
                table.order,
                table.time,
                prefix,
                argument.row_class,
            )
        )
    own = node.function_columns()
    return ProcessCall(
        user=node.user,
        tables=tuple(tables),
        values=node.values,
        names=tuple(node.result.field_names()) if isinstance(node.result, RowType) else ("f0",),
        types=tuple(column.type for column in own),
        prefix_types=tuple(column.type for column in node.schema.columns[: node.prefix]),
        rowtime=node.schema.types[-1] if node.has_rowtime else None,
        mode=mode,
        ttl_ms=planning.options.state_ttl_ms,
    )
