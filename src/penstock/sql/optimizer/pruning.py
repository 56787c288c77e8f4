"""Removes unread columns, and unread fields of ROW columns, from plans.

`Together` collects the columns or fields that are used of equal parts of a plan, so that the parts stay equal.

`without_unread_columns` removes columns that are never read, so that joins do not keep them and the network does not
carry them.

`without_unread_fields` removes unread fields of ROW columns, if the table can read the other fields alone. Only
projections, filters and watermarks may be between the table and the access to the fields. All other nodes read whole
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Final, Generic, TypeAlias, TypeVar

from penstock.sql.data.types import IntType
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.nodes import AggregateCall, Filter, Node, Project, RowSchema, Scan, SortKey, WatermarkAssigner
from penstock.sql.logical.properties import Known, rows_text, with_inputs
from penstock.sql.tables.tables import Path, PushDown, leaf
from penstock.sql.typed import Constant, Field, FunctionCall, Lambda, Typed, transformed

PartT = TypeVar("PartT")


class Together(Generic[PartT]):
    """The union of all uses, by the rows that a part produces. Record all places before reading any."""

    def __init__(self) -> None:
        self._used: dict[str, frozenset[PartT]] = {}
        self._texts: Known = {}

    def record(self, node: Node, used: frozenset[PartT]) -> frozenset[PartT]:
        """Record the uses in one place, and return them."""
        text = rows_text(node, self._texts)
        self._used[text] = self._used.get(text, frozenset()) | used
        return used

    def of(self, node: Node, used: frozenset[PartT]) -> frozenset[PartT]:
        """Return the uses in all places. `used`: the uses in one of them."""
        return self._used[rows_text(node, self._texts)]


#: the index of each column of a node in the node that replaces it
Places: TypeAlias = Mapping[int, int]
Used: TypeAlias = frozenset[int]
#: a table and its options
ScanKey: TypeAlias = tuple[tuple[str, str, str], tuple[tuple[str, str], ...]]
#: returns all columns used of a table with watermarks, given the ones used in one place
OfTimed: TypeAlias = Callable[[logical.WatermarkAssigner, Used], Used]
#: returns a table with only these columns, or None if it cannot be narrowed
Narrowed: TypeAlias = Callable[[Scan, Sequence[int]], Scan | None]
#: whether a top-N needs all columns of its input
IsWhole: TypeAlias = Callable[[logical.Rank | logical.Sort], bool]

#: the number of columns that a window table adds after its input's
_EDGES: Final = 3


def never(node: logical.Rank | logical.Sort) -> bool:
    """Return False: no top-N needs all columns."""
    return False


def without_unread_columns(plan: Node, narrowed: Narrowed, is_whole: IsWhole = never) -> Node:
    """Remove columns that are never read. The result keeps its columns, and unchanged parts stay the same objects.

    A table that is read in several places is read with all columns that any of them needs, so that one scan can serve
    all. The same applies to a table with watermarks: its computed columns and its watermarks are computed once.
    `is_whole`: whether a top-N has to distinguish rows by all of their columns.
    """
    together = Together[int]()
    read_columns = _columns_read(plan, is_whole, together.record)

    def narrow(scan: Scan, used: Used) -> tuple[Node, Places]:
        columns = sorted(read_columns[scan_key(scan)] | frozenset(scan.key)) or [0]
        narrowed_scan = narrowed(scan, columns) if len(columns) < len(scan.schema) else None
        return (
            (scan, _same_places(scan))
            if narrowed_scan is None
            else (narrowed_scan, {column: at for at, column in enumerate(columns)})
        )

    return _Pruner(narrow, is_whole, together.of).kept(plan, all_columns(plan))[0]


def columns_read(plan: Node, is_whole: IsWhole = never) -> dict[ScanKey, Used]:
    """Return the columns that a plan reads of each of its tables, over all places."""
    return _columns_read(plan, is_whole, Together[int]().record)


def _columns_read(plan: Node, is_whole: IsWhole, timed: OfTimed) -> dict[ScanKey, Used]:
    read_columns: dict[ScanKey, Used] = {}

    def record(scan: Scan, used: Used) -> tuple[Node, Places]:
        read_columns[scan_key(scan)] = read_columns.get(scan_key(scan), frozenset()) | used
        return scan, _same_places(scan)

    _Pruner(record, is_whole, timed).kept(plan, all_columns(plan))
    return read_columns


def no_narrower(scan: Scan, columns: Sequence[int]) -> Scan | None:
    """Return None, for tables that are always read whole."""
    return None


def scan_key(scan: Scan) -> ScanKey:
    """Return a key that is equal for tables that are read alike."""
    return scan.path, scan.options


def _same_places(node: Node) -> Places:
    return {index: index for index in range(len(node.schema))}


def all_columns(node: Node) -> Used:
    """Return the indexes of all columns of a node."""
    return frozenset(range(len(node.schema)))


def collect_columns(expressions: Iterable[Typed | None]) -> Used:
    """Return the columns that expressions read."""
    parts = (part for part in expressions if part is not None)
    return frozenset(expression.index for part in parts for expression in part.walk() if isinstance(expression, Field))


def columns_of_calls(calls: Iterable[AggregateCall]) -> Used:
    """Return the columns that aggregate calls read."""
    columns: set[int] = set()
    for call in calls:
        columns |= collect_columns([*call.operands, call.condition])
        columns |= {key.index for key in call.order}
    return frozenset(columns)


class _Pruner:
    """Removes columns. `scan` gets the columns read of a table, `timed` the ones read of a table with watermarks."""

    def __init__(self, scan: Callable[[Scan, Used], tuple[Node, Places]], is_whole: IsWhole, timed: OfTimed) -> None:
        self._is_whole = is_whole
        self._timed = timed
        self._rules: Mapping[type[Node], Callable[[Any, Used], tuple[Node, Places]]] = {
            Scan: scan,
            logical.Project: self._project,
            logical.Filter: self._filter,
            logical.ChangelogNormalize: self._normalize,
            logical.Expand: self._expand,
            logical.WatermarkAssigner: self._watermark,
            logical.WindowTable: self._window_table,
            logical.Join: self._join,
            logical.Aggregate: self._aggregate,
            logical.Over: self._over,
            logical.TemporalJoin: self._temporal_join,
            logical.LookupJoin: self._lookup_join,
            logical.MLPredictTableFunction: self._ml_predict,
            logical.Rank: self._rank,
            logical.Sort: self._sort,
            logical.SetOperation: self._union,
        }

    def _exactly(self, node: Node, used: Used) -> tuple[Node, Places]:
        """Return a node with exactly these columns, in their order, or with its first column if `used` is empty."""
        used = used or frozenset({0} if len(node.schema) else ())
        pruned, mapping = self.kept(node, used)
        if len(pruned.schema) == len(used):
            return pruned, mapping
        columns = [mapping[index] for index in sorted(used)]
        schema = RowSchema(tuple(pruned.schema[index] for index in columns))
        fields = pruned.schema.fields()
        narrowed = logical.Project(schema=schema, input=pruned, expressions=tuple(fields[index] for index in columns))
        return narrowed, {index: position for position, index in enumerate(sorted(used))}

    def kept(self, node: Node, used: Used) -> tuple[Node, Places]:
        """Return a node with at least these columns, and the new indexes of its remaining columns."""
        rule = self._rules.get(type(node))
        if rule is None:
            return self._over_all(node), _same_places(node)
        return rule(node, used)

    def _over_all(self, node: Node) -> Node:
        """Rewrite the inputs of a node that may read all of their columns."""
        return with_inputs(node, [self.kept(child, all_columns(child))[0] for child in node.inputs()])

    def _project(self, node: logical.Project, used: Used) -> tuple[Node, Places]:
        columns = sorted(used)
        inner, mapping = self.kept(node.input, collect_columns(node.expressions[index] for index in columns))
        if len(columns) == len(node.schema) and inner is node.input:
            return node, {index: index for index in columns}
        expressions = tuple(_moved(node.expressions[index], mapping) for index in columns)
        projection = logical.Project(schema=_schema(node.schema, columns), input=inner, expressions=expressions)
        return projection, {index: position for position, index in enumerate(columns)}

    def _filter(self, node: logical.Filter, used: Used) -> tuple[Node, Places]:
        inner, mapping = self.kept(node.input, used | collect_columns([node.condition]))
        if inner is node.input:
            return node, mapping
        schema = _schema(node.schema, sorted(mapping, key=mapping.__getitem__))
        return logical.Filter(schema=schema, input=inner, condition=_moved(node.condition, mapping)), mapping

    def _normalize(self, node: logical.ChangelogNormalize, used: Used) -> tuple[Node, Places]:
        # Exactly these, even if the table is read whole, so that updates of other columns change nothing.
        inner, mapping = self._exactly(node.input, used | frozenset(node.key))
        if inner is node.input:
            return node, mapping
        schema = _schema(node.schema, sorted(mapping, key=mapping.__getitem__))
        key = tuple(mapping[index] for index in node.key)
        return logical.ChangelogNormalize(schema=schema, input=inner, key=key), mapping

    def _expand(self, node: logical.Expand, used: Used) -> tuple[Node, Places]:
        columns = sorted(used)
        projections = [[row[index] for index in columns] for row in node.projections]
        inner, input_mapping = self.kept(
            node.input, collect_columns(expression for row in projections for expression in row)
        )
        mapping = {index: position for position, index in enumerate(columns)}
        if inner is node.input and len(columns) == len(node.schema):
            return node, mapping
        moved = tuple(tuple(_moved(expression, input_mapping) for expression in row) for row in projections)
        return logical.Expand(schema=_schema(node.schema, columns), input=inner, projections=moved), mapping

    def _watermark(self, node: logical.WatermarkAssigner, used: Used) -> tuple[Node, Places]:
        # A route writes all columns of the table.
        used = used if node.route is None else all_columns(node)
        used = self._timed(node, used | {node.column} | collect_columns([node.expression]))
        inner, mapping = self.kept(node.input, used)
        if inner is node.input:
            return node, mapping
        schema = _schema(node.schema, sorted(mapping, key=mapping.__getitem__))
        expression = _moved(node.expression, mapping)
        rewritten = replace(node, schema=schema, input=inner, column=mapping[node.column], expression=expression)
        return rewritten, mapping

    def _window_table(self, node: logical.WindowTable, used: Used) -> tuple[Node, Places]:
        width = len(node.input.schema)
        needed = frozenset(index for index in used if index < width) | {node.time} | frozenset(node.partition)
        inner, input_mapping = self._exactly(node.input, needed)
        mapping = {**input_mapping, **{width + edge: len(inner.schema) + edge for edge in range(_EDGES)}}
        if inner is node.input:
            return node, mapping
        schema = RowSchema((*inner.schema, *node.schema.columns[width:]))
        partition = tuple(input_mapping[index] for index in node.partition)
        return replace(node, schema=schema, input=inner, time=input_mapping[node.time], partition=partition), mapping

    def _sides(self, node: logical.Join | logical.TemporalJoin, used: Used) -> tuple[Node, Node, Places]:
        """Return both sides with only these columns, and the new indexes of the columns within both."""
        width = len(node.left.schema)
        left, of_left = self._exactly(node.left, frozenset(index for index in used if index < width))
        right, of_right = self._exactly(node.right, frozenset(index - width for index in used if index >= width))
        moved = {width + index: len(left.schema) + position for index, position in of_right.items()}
        return left, right, {**of_left, **moved}

    def _join(self, node: logical.Join, used: Used) -> tuple[Node, Places]:
        left, right, mapping = self._sides(node, used | collect_columns([node.condition]))
        if left is node.left and right is node.right:
            return node, _same_places(node)
        columns = sorted((index for index in mapping if index < len(node.schema)), key=mapping.__getitem__)
        rewritten = replace(
            node,
            schema=_schema(node.schema, columns),
            left=left,
            right=right,
            condition=_moved(node.condition, mapping),
        )
        return rewritten, {index: mapping[index] for index in columns}

    def _temporal_join(self, node: logical.TemporalJoin, used: Used) -> tuple[Node, Places]:
        width = len(node.left.schema)
        # The right side's event time determines since when a row is valid, even if nothing else reads it.
        times = {width + position for position, column in enumerate(node.right.schema) if column.time is not None}
        left, right, mapping = self._sides(node, used | collect_columns([node.condition, node.time]) | times)
        if left is node.left and right is node.right:
            return node, _same_places(node)
        rewritten = replace(
            node,
            schema=_schema(node.schema, sorted(mapping, key=mapping.__getitem__)),
            left=left,
            right=right,
            condition=_moved(node.condition, mapping),
            time=replace(node.time, index=mapping[node.time.index]),
        )
        return rewritten, mapping

    def _lookup_join(self, node: logical.LookupJoin, used: Used) -> tuple[Node, Places]:
        width = len(node.input.schema)
        needed = used | collect_columns([*node.key_values, node.asks, node.condition])
        inner, input_mapping = self._exactly(node.input, frozenset(index for index in needed if index < width))
        right = sorted(index for index in needed if index >= width)
        mapping = {**input_mapping, **{index: len(inner.schema) + position for position, index in enumerate(right)}}
        if inner is node.input and len(right) == len(node.expressions):
            return node, mapping
        rewritten = replace(
            node,
            schema=_schema(node.schema, sorted(mapping, key=mapping.__getitem__)),
            input=inner,
            key_values=tuple(_moved(value, input_mapping) for value in node.key_values),
            expressions=tuple(node.expressions[index - width] for index in right),
            asks=None if node.asks is None else _moved(node.asks, mapping),
            condition=None if node.condition is None else _moved(node.condition, mapping),
        )
        return rewritten, mapping

    def _ml_predict(self, node: logical.MLPredictTableFunction, used: Used) -> tuple[Node, Places]:
        width = len(node.input.schema)
        needed = frozenset(index for index in used if index < width) | collect_columns(node.arguments)
        inner, input_mapping = self._exactly(node.input, needed)
        if inner is node.input:
            return node, _same_places(node)
        predicted = node.schema.columns[width:]
        mapping = {**input_mapping, **{width + index: len(inner.schema) + index for index in range(len(predicted))}}
        schema = RowSchema((*inner.schema, *predicted))
        arguments = tuple(_moved(argument, input_mapping) for argument in node.arguments)
        return replace(node, schema=schema, input=inner, arguments=arguments), mapping

    def _aggregate(self, node: logical.Aggregate, used: Used) -> tuple[Node, Places]:
        if node.sets:
            return self._over_all(node), _same_places(node)
        width = len(node.keys)
        numbers = [index for index in range(len(node.calls)) if width + index in used]
        if not node.keys and not numbers:
            numbers = list(range(min(1, len(node.calls))))
        calls = [node.calls[index] for index in numbers]
        inner, input_mapping = self._exactly(node.input, frozenset(node.keys) | columns_of_calls(calls))
        mapping = {index: index for index in range(width)}
        mapping |= {width + index: width + position for position, index in enumerate(numbers)}
        if inner is node.input and len(calls) == len(node.calls):
            return node, mapping
        columns = [*range(width), *(width + index for index in numbers)]
        rewritten = replace(
            node,
            schema=_schema(node.schema, columns),
            input=inner,
            keys=tuple(input_mapping[key] for key in node.keys),
            calls=tuple(_moved_call(call, input_mapping) for call in calls),
        )
        return rewritten, mapping

    def _over(self, node: logical.Over, used: Used) -> tuple[Node, Places]:
        width = len(node.input.schema)
        numbers = [index for index in range(len(node.calls)) if width + index in used]
        if not numbers:
            return self.kept(node.input, used)
        calls = [node.calls[index] for index in numbers]
        ordered = frozenset(key.index for key in node.order)
        needed = frozenset(index for index in used if index < width)
        inner, input_mapping = self._exactly(
            node.input, needed | frozenset(node.partition) | ordered | columns_of_calls(calls)
        )
        behind = len(inner.schema)
        mapping = {**input_mapping, **{width + index: behind + position for position, index in enumerate(numbers)}}
        if inner is node.input and len(calls) == len(node.calls):
            return node, mapping
        columns = (*inner.schema, *(node.schema[width + index] for index in numbers))
        rewritten = replace(
            node,
            schema=RowSchema(columns),
            input=inner,
            partition=tuple(input_mapping[index] for index in node.partition),
            order=_moved_keys(node.order, input_mapping),
            calls=tuple(_moved_call(call, input_mapping) for call in calls),
        )
        return rewritten, mapping

    def _rank(self, node: logical.Rank, used: Used) -> tuple[Node, Places]:
        width = len(node.input.schema)
        needed = frozenset(index for index in used if index < width) | frozenset(node.partition)
        needed |= frozenset(key.index for key in node.order)
        needed |= frozenset(() if node.end_column is None else (node.end_column,))
        needed = all_columns(node.input) if self._is_whole(node) else needed
        inner, input_mapping = self._exactly(node.input, needed)
        mapping = {**input_mapping, **({width: len(inner.schema)} if node.shows_number else {})}
        if inner is node.input:
            return node, mapping
        rewritten = replace(
            node,
            schema=RowSchema((*inner.schema, *node.schema.columns[width:])),
            input=inner,
            partition=tuple(input_mapping[index] for index in node.partition),
            order=_moved_keys(node.order, input_mapping),
            end_column=None if node.end_column is None else input_mapping[node.end_column],
        )
        return rewritten, mapping

    def _sort(self, node: logical.Sort, used: Used) -> tuple[Node, Places]:
        needed = all_columns(node.input) if self._is_whole(node) else used | frozenset(key.index for key in node.keys)
        inner, mapping = self._exactly(node.input, needed)
        if inner is node.input:
            return node, mapping
        return replace(node, schema=inner.schema, input=inner, keys=_moved_keys(node.keys, mapping)), mapping

    def _union(self, node: logical.SetOperation, used: Used) -> tuple[Node, Places]:
        if node.operator != "UNION" or not node.is_all:
            return self._over_all(node), _same_places(node)
        parts = [self._exactly(part, used) for part in node.parts]
        mapping = parts[0][1]
        if all(part is other for (part, _), other in zip(parts, node.parts, strict=True)):
            return node, mapping
        schema = _schema(node.schema, sorted(mapping, key=mapping.__getitem__))
        return replace(node, schema=schema, parts=tuple(part for part, _ in parts)), mapping


def _moved(expression: Typed, mapping: Places) -> Typed:
    """Rewrite an expression for the new indexes of its columns."""
    return transformed(
        expression, lambda node: replace(node, index=mapping[node.index]) if isinstance(node, Field) else node
    )


def _moved_call(call: AggregateCall, mapping: Places) -> AggregateCall:
    return replace(
        call,
        operands=tuple(_moved(operand, mapping) for operand in call.operands),
        condition=None if call.condition is None else _moved(call.condition, mapping),
        order=_moved_keys(call.order, mapping),
    )


def _moved_keys(keys: Iterable[SortKey], mapping: Places) -> tuple[SortKey, ...]:
    return tuple(replace(key, index=mapping[key.index]) for key in keys)


def _schema(schema: RowSchema, columns: Iterable[int]) -> RowSchema:
    return RowSchema(tuple(schema[index] for index in columns))


UsedFields: TypeAlias = frozenset[Path]
#: the column that now holds each field that is read
FieldPositions: TypeAlias = Mapping[Path, int]
_FIELD: Final = "FIELD"


def without_unread_fields(plan: Node, tables: PushDown) -> Node:
    """Rewrite a plan to read only the fields that it needs. The columns of its result stay, with their names."""
    used_paths: dict[ScanKey, UsedFields] = {}
    together = Together[Path]()
    narrowed_scans: dict[ScanKey, Scan | None] = {}

    def record(scan: Scan, used: UsedFields) -> tuple[Node, FieldPositions]:
        used_paths[scan_key(scan)] = used_paths.get(scan_key(scan), frozenset()) | used
        return scan, _same_fields(scan)

    def narrow(scan: Scan, used: UsedFields) -> tuple[Node, FieldPositions]:
        key = scan_key(scan)
        paths = _shortest(used_paths[key] | {(column,) for column in _kept_whole(scan)})
        if key not in narrowed_scans:
            has_fields = any(len(path) > 1 for path in paths)
            narrowed_scans[key] = tables.leaves(scan, paths) if has_fields else None
        narrowed = narrowed_scans[key]
        if narrowed is None:
            return scan, _same_fields(scan)
        return narrowed, {path: position for position, path in enumerate(paths)}

    _FieldPruner(lambda scan, used: (scan, _same_fields(scan)), together.record).whole(plan)
    _FieldPruner(record, together.of).whole(plan)
    return _FieldPruner(narrow, together.of).whole(plan)


def _kept_whole(scan: Scan) -> Iterable[int]:
    return [*scan.key, *(index for index, _ in scan.metadata)]


def _same_fields(node: Node) -> FieldPositions:
    return {(index,): index for index in range(len(node.schema))}


def _shortest(paths: AbstractSet[Path]) -> list[Path]:
    """Return the paths without the ones within other paths."""
    return sorted(path for path in paths if not any(path[:length] in paths for length in range(1, len(path))))


class _FieldPruner:
    """Reads single fields. `scan` gets the paths read of a table, `timed` the ones read of a table with watermarks."""

    def __init__(
        self,
        scan: Callable[[Scan, UsedFields], tuple[Node, FieldPositions]],
        timed: Callable[[WatermarkAssigner, UsedFields], UsedFields],
    ) -> None:
        self._timed = timed
        self._rules: Mapping[type[Node], Callable[[Any, UsedFields], tuple[Node, FieldPositions]]] = {
            Scan: scan,
            Project: self._project,
            Filter: self._filter,
            WatermarkAssigner: self._watermark,
        }

    def whole(self, node: Node) -> Node:
        """Rewrite a node, keeping all its columns."""
        if type(node) not in self._rules:
            return with_inputs(node, [self.whole(child) for child in node.inputs()])
        return self._kept(node, frozenset(_same_fields(node)))[0]

    def _kept(self, node: Node, used: UsedFields) -> tuple[Node, FieldPositions]:
        """Return a node with columns for the used paths, and their indexes. It may have more columns."""
        rule = self._rules.get(type(node))
        return (self.whole(node), _same_fields(node)) if rule is None else rule(node, used)

    def _project(self, node: Project, used: UsedFields) -> tuple[Node, FieldPositions]:
        by_column: dict[int, set[Path]] = {}
        for path in used:
            by_column.setdefault(path[0], set()).add(path)
        paths = [
            path for index in range(len(node.schema)) for path in _shortest(by_column.get(index, set())) or [(index,)]
        ]
        leaves = [_below(node.expressions[path[0]], path[1:]) for path in paths]
        inner, mapping = self._kept(node.input, frozenset(_collect_paths(leaves)))
        expressions = tuple(_move_fields(expression, mapping) for expression in leaves)
        if inner is node.input and expressions == node.expressions:
            return node, _same_fields(node)
        columns = tuple(leaf(node.schema, path) for path in paths)
        projection = Project(schema=RowSchema(columns), input=inner, expressions=expressions)
        return projection, {path: position for position, path in enumerate(paths)}

    def _filter(self, node: Filter, used: UsedFields) -> tuple[Node, FieldPositions]:
        inner, mapping = self._kept(node.input, used | frozenset(_collect_paths([node.condition])))
        if inner is node.input:
            return node, mapping
        return Filter(schema=inner.schema, input=inner, condition=_move_fields(node.condition, mapping)), mapping

    def _watermark(self, node: WatermarkAssigner, used: UsedFields) -> tuple[Node, FieldPositions]:
        used = used if node.route is None else frozenset(_same_fields(node))
        used = self._timed(node, used | frozenset(_collect_paths([node.expression])) | {(node.column,)})
        inner, mapping = self._kept(node.input, used)
        if inner is node.input:
            return node, mapping
        column = mapping[(node.column,)]
        columns = list(inner.schema)
        columns[column] = node.schema[node.column]
        expression = _move_fields(node.expression, mapping)
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


def _move_fields(expression: Typed, mapping: FieldPositions) -> Typed:
    """Rewrite an expression for the columns that now hold its fields."""
    path = _path(expression)
    if path is None:
        if isinstance(expression, FunctionCall):
            return replace(
                expression, operands=tuple(_move_fields(operand, mapping) for operand in expression.operands)
            )
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
