"""Removes unread fields of ROW columns, if the table can read the other fields alone.

Only projections, filters and watermarks may be between the table and the access to the fields. All other nodes read
whole columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Final, TypeAlias

from penstock.table.connectors.abilities import Path
from penstock.table.connectors.push_down import PushDown, leaf
from penstock.table.data.logical_types import IntType
from penstock.table.plan.inputs import with_inputs
from penstock.table.plan.logical import Filter, Node, Project, Scan, WatermarkAssigner
from penstock.table.plan.row_schema import RowSchema
from penstock.table.streaming.rewrites.columns import ScanKey, scan_key
from penstock.table.streaming.rewrites.together import Together
from penstock.table.typed.nodes import Constant, Field, FunctionCall, Lambda, Typed

Used: TypeAlias = frozenset[Path]
#: the column that now holds each field that is read
Places: TypeAlias = Mapping[Path, int]
_FIELD: Final = "FIELD"


def without_unread_fields(plan: Node, tables: PushDown) -> Node:
    """Rewrite a plan to read only the fields that it needs. The columns of its result stay, with their names."""
    used_paths: dict[ScanKey, Used] = {}
    together = Together[Path]()
    narrowed_scans: dict[ScanKey, Scan | None] = {}

    def record(scan: Scan, used: Used) -> tuple[Node, Places]:
        used_paths[scan_key(scan)] = used_paths.get(scan_key(scan), frozenset()) | used
        return scan, _same_places(scan)

    def narrow(scan: Scan, used: Used) -> tuple[Node, Places]:
        key = scan_key(scan)
        paths = _shortest(used_paths[key] | {(column,) for column in _kept_whole(scan)})
        if key not in narrowed_scans:
            has_fields = any(len(path) > 1 for path in paths)
            narrowed_scans[key] = tables.leaves(scan, paths) if has_fields else None
        narrowed = narrowed_scans[key]
        if narrowed is None:
            return scan, _same_places(scan)
        return narrowed, {path: position for position, path in enumerate(paths)}

    _Pruner(lambda scan, used: (scan, _same_places(scan)), together.record).whole(plan)
    _Pruner(record, together.of).whole(plan)
    return _Pruner(narrow, together.of).whole(plan)


def _kept_whole(scan: Scan) -> Iterable[int]:
    return [*scan.key, *(index for index, _ in scan.metadata)]


def _same_places(node: Node) -> Places:
    return {(index,): index for index in range(len(node.schema))}


def _shortest(paths: AbstractSet[Path]) -> list[Path]:
    """Return the paths without the ones within other paths."""
    return sorted(path for path in paths if not any(path[:length] in paths for length in range(1, len(path))))


class _Pruner:
    """Reads single fields. `scan` gets the paths read of a table, `timed` the ones read of a table with watermarks."""

    def __init__(
        self,
        scan: Callable[[Scan, Used], tuple[Node, Places]],
        timed: Callable[[WatermarkAssigner, Used], Used],
    ) -> None:
        self._timed = timed
        self._rules: Mapping[type[Node], Callable[[Any, Used], tuple[Node, Places]]] = {
            Scan: scan,
            Project: self._project,
            Filter: self._filter,
            WatermarkAssigner: self._watermark,
        }

    def whole(self, node: Node) -> Node:
        """Rewrite a node, keeping all its columns."""
        if type(node) not in self._rules:
            return with_inputs(node, [self.whole(child) for child in node.inputs()])
        return self._kept(node, frozenset(_same_places(node)))[0]

    def _kept(self, node: Node, used: Used) -> tuple[Node, Places]:
        """Return a node with columns for the used paths, and their indexes. It may have more columns."""
        rule = self._rules.get(type(node))
        return (self.whole(node), _same_places(node)) if rule is None else rule(node, used)

    def _project(self, node: Project, used: Used) -> tuple[Node, Places]:
        by_column: dict[int, set[Path]] = {}
        for path in used:
            by_column.setdefault(path[0], set()).add(path)
        paths = [
            path for index in range(len(node.schema)) for path in _shortest(by_column.get(index, set())) or [(index,)]
        ]
        leaves = [_below(node.expressions[path[0]], path[1:]) for path in paths]
        inner, mapping = self._kept(node.input, frozenset(_collect_paths(leaves)))
        expressions = tuple(_moved(expression, mapping) for expression in leaves)
        if inner is node.input and expressions == node.expressions:
            return node, _same_places(node)
        columns = tuple(leaf(node.schema, path) for path in paths)
        projection = Project(schema=RowSchema(columns), input=inner, expressions=expressions)
        return projection, {path: position for position, path in enumerate(paths)}

    def _filter(self, node: Filter, used: Used) -> tuple[Node, Places]:
        inner, mapping = self._kept(node.input, used | frozenset(_collect_paths([node.condition])))
        if inner is node.input:
            return node, mapping
        return Filter(schema=inner.schema, input=inner, condition=_moved(node.condition, mapping)), mapping

    def _watermark(self, node: WatermarkAssigner, used: Used) -> tuple[Node, Places]:
        used = used if node.route is None else frozenset(_same_places(node))
        used = self._timed(node, used | frozenset(_collect_paths([node.expression])) | {(node.column,)})
        inner, mapping = self._kept(node.input, used)
        if inner is node.input:
            return node, mapping
        column = mapping[(node.column,)]
        columns = list(inner.schema)
        columns[column] = node.schema[node.column]
        expression = _moved(node.expression, mapping)
        rewritten = replace(node, schema=RowSchema(tuple(columns)), input=inner, column=column, expression=expression)
        return rewritten, mapping


def _below(expression: Typed, fields: Path) -> Typed:
    """Return the access to a nested field of an expression."""
    for index in fields:
        kind = tuple(expression.type.children())[index]
        kind = kind.nullable() if expression.type.is_nullable else kind
        expression = FunctionCall(kind, _FIELD, (expression, Constant(IntType(False), index)))
    return expression


def _path(expression: Typed) -> Path | None:
    """Return the path of the field that an expression reads, or None if it is not a plain field."""
    if isinstance(expression, Field):
        return (expression.index,)
    if isinstance(expression, FunctionCall) and expression.function == _FIELD:
        row, index = expression.operands
        path = _path(row)
        if path is not None and isinstance(index, Constant) and isinstance(index.value, int):
            return (*path, index.value)
    return None


def _collect_paths(expressions: Iterable[Typed]) -> Iterator[Path]:
    for expression in expressions:
        path = _path(expression)
        if path is not None:
            yield path
        elif not isinstance(expression, Lambda):
            # The fields in a function's body are its parameters.
            yield from _collect_paths(expression.children())


def _moved(expression: Typed, mapping: Places) -> Typed:
    """Rewrite an expression for the columns that now hold its fields."""
    path = _path(expression)
    if path is None:
        if isinstance(expression, FunctionCall):
            return replace(expression, operands=tuple(_moved(operand, mapping) for operand in expression.operands))
        return expression
    for length in range(len(path), 0, -1):
        index = mapping.get(path[:length])
        if index is not None:
            return _reread(expression, len(path) - length, index)
    raise AssertionError(path)


def _reread(expression: Typed, fields: int, index: int) -> Typed:
    """Rebuild a chain of field accesses, whose last `fields` ones read the column at this index."""
    if fields:
        assert isinstance(expression, FunctionCall)
        row, number = expression.operands
        return replace(expression, operands=(_reread(row, fields - 1, index), number))
    if isinstance(expression, Field):
        return replace(expression, index=index)
    return Field(expression.type, index)
