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
    asked: dict[ScanKey, Used] = {}
    together = Together[Path]()
    found: dict[ScanKey, Scan | None] = {}

    def record(scan: Scan, used: Used) -> tuple[Node, Places]:
        asked[scan_key(scan)] = asked.get(scan_key(scan), frozenset()) | used
        return scan, _same_places(scan)

    def narrow(scan: Scan, used: Used) -> tuple[Node, Places]:
        key = scan_key(scan)
        paths = _shortest(asked[key] | {(column,) for column in _kept_whole(scan)})
        if key not in found:
            has_fields = any(len(path) > 1 for path in paths)
            found[key] = tables.leaves(scan, paths) if has_fields else None
        made = found[key]
        if made is None:
            return scan, _same_places(scan)
        return made, {path: place for place, path in enumerate(paths)}

    _Pruner(lambda scan, used: (scan, _same_places(scan)), together.record).whole(plan)
    _Pruner(record, together.of).whole(plan)
    return _Pruner(narrow, together.of).whole(plan)


def _kept_whole(scan: Scan) -> Iterable[int]:
    return [*scan.key, *(place for place, _ in scan.metadata)]


def _same_places(node: Node) -> Places:
    return {(index,): index for index in range(len(node.schema))}


def _shortest(paths: AbstractSet[Path]) -> list[Path]:
    """Return the paths without the ones within other paths."""
    return sorted(one for one in paths if not any(one[:length] in paths for length in range(1, len(one))))


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
            return with_inputs(node, [self.whole(one) for one in node.inputs()])
        return self._kept(node, frozenset(_same_places(node)))[0]

    def _kept(self, node: Node, used: Used) -> tuple[Node, Places]:
        """Return a node with columns for the used paths, and their indexes. It may have more columns."""
        rule = self._rules.get(type(node))
        return (self.whole(node), _same_places(node)) if rule is None else rule(node, used)

    def _project(self, node: Project, used: Used) -> tuple[Node, Places]:
        by_column: dict[int, set[Path]] = {}
        for path in used:
            by_column.setdefault(path[0], set()).add(path)
        wanted = [
            one for index in range(len(node.schema)) for one in _shortest(by_column.get(index, set())) or [(index,)]
        ]
        made = [_below(node.expressions[path[0]], path[1:]) for path in wanted]
        inner, places = self._kept(node.input, frozenset(_paths_in(made)))
        expressions = tuple(_moved(one, places) for one in made)
        if inner is node.input and expressions == node.expressions:
            return node, _same_places(node)
        columns = tuple(leaf(node.schema, path) for path in wanted)
        found = Project(schema=RowSchema(columns), input=inner, expressions=expressions)
        return found, {path: place for place, path in enumerate(wanted)}

    def _filter(self, node: Filter, used: Used) -> tuple[Node, Places]:
        inner, places = self._kept(node.input, used | frozenset(_paths_in([node.condition])))
        if inner is node.input:
            return node, places
        return Filter(schema=inner.schema, input=inner, condition=_moved(node.condition, places)), places

    def _watermark(self, node: WatermarkAssigner, used: Used) -> tuple[Node, Places]:
        used = used if node.route is None else frozenset(_same_places(node))
        used = self._timed(node, used | frozenset(_paths_in([node.expression])) | {(node.column,)})
        inner, places = self._kept(node.input, used)
        if inner is node.input:
            return node, places
        column = places[(node.column,)]
        columns = list(inner.schema)
        columns[column] = node.schema[node.column]
        expression = _moved(node.expression, places)
        found = replace(node, schema=RowSchema(tuple(columns)), input=inner, column=column, expression=expression)
        return found, places


def _below(expression: Typed, fields: Path) -> Typed:
    """Return the access to a nested field of an expression."""
    for place in fields:
        kind = tuple(expression.type.children())[place]
        kind = kind.nullable() if expression.type.is_nullable else kind
        expression = FunctionCall(kind, _FIELD, (expression, Constant(IntType(False), place)))
    return expression


def _path(expression: Typed) -> Path | None:
    """Return the path of the field that an expression reads, or None if it is not a plain field."""
    if isinstance(expression, Field):
        return (expression.index,)
    if isinstance(expression, FunctionCall) and expression.function == _FIELD:
        row, place = expression.operands
        path = _path(row)
        if path is not None and isinstance(place, Constant) and isinstance(place.value, int):
            return (*path, place.value)
    return None


def _paths_in(expressions: Iterable[Typed]) -> Iterator[Path]:
    for one in expressions:
        path = _path(one)
        if path is not None:
            yield path
        elif not isinstance(one, Lambda):
            # The fields in a function's body are its parameters.
            yield from _paths_in(one.children())


def _moved(expression: Typed, places: Places) -> Typed:
    """Rewrite an expression for the columns that now hold its fields."""
    path = _path(expression)
    if path is None:
        if isinstance(expression, FunctionCall):
            return replace(expression, operands=tuple(_moved(one, places) for one in expression.operands))
        return expression
    for length in range(len(path), 0, -1):
        place = places.get(path[:length])
        if place is not None:
            return _reread(expression, len(path) - length, place)
    raise AssertionError(path)


def _reread(expression: Typed, fields: int, place: int) -> Typed:
    """Rebuild a chain of field accesses, whose last `fields` ones read the column at this index."""
    if fields:
        assert isinstance(expression, FunctionCall)
        row, number = expression.operands
        return replace(expression, operands=(_reread(row, fields - 1, place), number))
    if isinstance(expression, Field):
        return replace(expression, index=place)
    return Field(expression.type, place)
