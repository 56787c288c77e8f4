"""Plans window tables and window aggregates.

An aggregate directly above a window table reads the window table's input and assigns the windows itself, so a row in
several windows is not copied. If kernels compute all calls, windows share their common parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from penstock.base.errors import UnsupportedError
from penstock.runtime.operators.base import StreamOperator
from penstock.sql.analyzer.select import EDGES, find_window_edges, is_processing
from penstock.sql.data.errors import ValidationError
from penstock.sql.expressions.evaluator import is_stable
from penstock.sql.logical.explain import window_aggregate_text
from penstock.sql.logical.nodes import (
    ALL,
    INSERTS,
    Aggregate,
    AggregateCall,
    Changes,
    Filter,
    Node,
    PlanColumn,
    Project,
    RowSchema,
    WindowTable,
)
from penstock.sql.optimizer.pushdown import Calc
from penstock.sql.stream.aggregates.accumulators import check_windowed
from penstock.sql.stream.aggregates.kernels import GROUPED, is_by_kernel
from penstock.sql.stream.planning.options import Optimization
from penstock.sql.stream.planning.rule import Factory, Planning, Rule, Stream, by_columns, name_columns
from penstock.sql.stream.windows import columnar
from penstock.sql.stream.windows.session_table import EmittingWindowOperator, SessionTableOperator
from penstock.sql.stream.windows.window_aggregate import WindowAggregateOperator, WindowTableOperator, WindowTime
from penstock.sql.typed import Field, Typed, transformed

# --- window tables ----------------------------------------------------------------------------------------------------


class WindowTableRule(Rule[WindowTable]):
    """The window tables TUMBLE, HOP, CUMULATE and SESSION."""

    nodes = (WindowTable,)

    def changes(self, node: WindowTable, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.changes(node.input)

    def asks_before(self, node: WindowTable, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE for updates, because the previous row may be in another window."""
        return planning.updates(node.input)

    def stream(self, node: WindowTable, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        if is_processing(node):
            raise UnsupportedError(
                f"Processing time Window TableFunction is not supported yet: {node.kind} of processing time has to be "
                "followed by GROUP BY window_start, window_end"
            )
        return table_stream(node, planning)


def table_stream(node: WindowTable, planning: Planning) -> Stream:
    """Return the rows of a window table."""
    _check_time(node)
    inner = planning.stream(node.input, planning.updates(node.input))
    names = name_columns(node.schema)
    title = f"Window Table {node.kind}"
    if node.kind == "SESSION":
        operator: Factory = partial(
            SessionTableOperator,
            node.partition,
            WindowTime.of(node),
            node.sizes[0],
            node.schema.types,
            names,
            planning.session,
        )
        limit = None if node.partition else 1
        inputs = by_columns(inner, node.partition)
        upstreams = planning.step(title, operator, inputs, is_stateful=True, parallelism_limit=limit)
    else:
        operator = partial(
            WindowTableOperator, node.kind, WindowTime.of(node), node.sizes, node.offset, names, planning.session
        )
        upstreams = planning.step(title, operator, inner.upstreams, inner.changes != INSERTS)
    return Stream(upstreams, node.schema, inner.changes, inner.has_before)


def _check_time(node: WindowTable) -> None:
    column = node.input.schema[node.time]
    if column.time is None:
        raise ValidationError(
            f"The window function requires the timecol is a time attribute type, but is {column.type}."
        )


# --- aggregates -------------------------------------------------------------------------------------------------------


def aggregate_changes(node: Aggregate, planning: Planning) -> Changes:
    """Return the changelog mode of a window aggregate."""
    if not (_window_and_edges(node)[0].is_group and planning.options.emission.updates):
        return INSERTS
    return INSERTS | Changes.UPDATE if planning.changes(node.input) == INSERTS else ALL


def aggregate_stream(node: Aggregate, planning: Planning, wants_before: bool) -> Stream:
    """Return the results of a window aggregate."""
    schema = node.schema
    changes = aggregate_changes(node, planning)
    if _finds_windows(node, planning):
        node = below_window(node, planning.extract_calc(node.input)) or node
    retracts = planning.changes(node.input) != INSERTS
    window, edges = _window_and_edges(node)
    planning.options.emission.check(window.kind, window.is_group)
    for call in node.calls:
        check_windowed(call, window.kind, retracts)
    is_right_above = node.input is window and _finds_windows(node, planning)
    if is_right_above:
        _check_time(window)
    is_by_kernel = planning.options.allows(Optimization.COLUMN_WINDOWS)
    is_by_kernel = is_by_kernel and _is_by_kernel(node, window if is_right_above else None)
    if retracts or changes != INSERTS or not is_by_kernel:
        rows = table_stream(window, planning) if is_right_above else planning.stream(node.input, retracts)
        return _by_row(node, rows, planning, changes, wants_before)
    keys = tuple(-1 - edges[key] if key in edges else key for key in node.keys)
    windows = columnar.ColumnWindows(
        keys,
        WindowTime.of(window),
        node.calls,
        tuple(schema.types),
        tuple(name_columns(schema)),
        planning.session,
    )
    inner = planning.stream(window.input if is_right_above else node.input, False)
    edge_keys = {edge: key for key, edge in edges.items()}
    operator: Factory
    if not is_right_above:
        operator = partial(columnar.ColumnWindowsOfRowsOperator, windows, edge_keys[0], edge_keys[1])
    elif window.kind == "SESSION":
        operator = partial(columnar.ColumnSessionAggregateOperator, windows, window.sizes[0])
    else:
        operator = partial(columnar.ColumnWindowAggregateOperator, windows, window.kind, window.sizes, window.offset)
    return _added(node, operator, inner, windows.groups(), planning)


def _finds_windows(node: Aggregate, planning: Planning) -> bool:
    """Return whether an aggregate may assign windows itself. SESSION always does, because the result depends on it."""
    window, _ = _window_and_edges(node)
    return window.kind == "SESSION" or planning.options.allows(Optimization.WINDOWS_IN_AGGREGATES)


def _window_and_edges(node: Aggregate) -> tuple[WindowTable, dict[int, int]]:
    """Return the window of an aggregate's rows, and its keys that are window edges, by position among the keys."""
    window_and_edges = find_window_edges(node.input, node.keys)
    assert window_and_edges is not None
    return window_and_edges[0], {key: window_and_edges[1][key] for key in node.keys if key in window_and_edges[1]}


def _is_by_kernel(node: Aggregate, window: WindowTable | None) -> bool:
    """Return whether kernels compute all calls and group by the keys. `window`: the window table directly below.

    A session in columns cannot store the values of COUNT DISTINCT.
    """
    is_session = window is not None and window.kind == "SESSION"
    if is_session and any(call.is_distinct and call.function == "COUNT" for call in node.calls):
        return False
    if window is not None and any(index >= len(window.input.schema) for call in node.calls for index in _read(call)):
        return False  # the rows below do not have window edges yet
    are_columns = all(isinstance(node.input.schema[key].type, GROUPED) for key in node.keys)
    return are_columns and all(map(is_by_kernel, node.calls))


def _read(call: AggregateCall) -> set[int]:
    """Return the columns that a call reads."""
    expressions = [*call.operands, *([] if call.condition is None else [call.condition])]
    return {part.index for expression in expressions for part in expression.walk() if isinstance(part, Field)}


def _by_row(node: Aggregate, inner: Stream, planning: Planning, changes: Changes, wants_before: bool) -> Stream:
    window, edges = _window_and_edges(node)
    groups = [key for key in node.keys if key not in edges]
    factory: Callable[..., StreamOperator] = WindowAggregateOperator
    if changes != INSERTS:
        factory = partial(EmittingWindowOperator, emission=planning.options.emission, wants_before=wants_before)
    operator = partial(
        factory,
        node.keys,
        edges,
        WindowTime.of(window),
        node.calls,
        node.input.schema.types,
        name_columns(node.schema),
        planning.changes(node.input) != INSERTS,
        planning.session,
    )
    stream = _added(node, operator, inner, groups, planning)
    return replace(stream, changes=changes, has_before=wants_before and changes != INSERTS)


def _added(node: Aggregate, operator: Factory, inner: Stream, groups: Sequence[int], planning: Planning) -> Stream:
    limit = None if groups else 1
    inputs = by_columns(inner, groups)
    text = window_aggregate_text(node, _window_and_edges(node)[0])
    upstreams = planning.step(
        "Window Aggregate", operator, inputs, is_stateful=True, parallelism_limit=limit, description=text
    )
    return Stream(upstreams, node.schema, INSERTS, False)


def below_window(node: Aggregate, calc: Calc) -> Aggregate | None:
    """Move the filters and projections between an aggregate and its window table below the window table.

    Returns the aggregate, or None if other nodes are between them or an expression needs the window. Rows that fail the
    filter then do not hold a session together, as in Flink; above a window table they do.

    Args:
        node: groups by both ends of a window.
        calc: the filters and projections between the aggregate and the window table.
    """
    window = calc.input
    if not isinstance(window, WindowTable):
        return None
    width = len(window.input.schema)
    expressions = calc.expressions or tuple(window.schema.fields())
    edges = [
        expression.index - width if isinstance(expression, Field) and expression.index >= width else None
        for expression in expressions
    ]
    moved = [expression for expression, edge in zip(expressions, edges, strict=True) if edge is None]
    filters = [] if calc.condition is None else [calc.condition]
    if any(
        isinstance(part, Field) and part.index >= width
        for expression in [*moved, *filters]
        for part in expression.walk()
    ):
        return None
    if not all(map(is_stable, [*moved, *filters])):
        return None
    columns = [
        column if isinstance(expression, Field) else PlanColumn(column.name, column.type)
        for column, expression, edge in zip(node.input.schema, expressions, edges, strict=True)
        if edge is None
    ]
    needed = (window.time, *window.partition)
    for index in needed:
        field = window.input.schema.field(index)
        if field not in moved:
            moved.append(field)
            columns.append(window.input.schema[index])
    time, *partition = [moved.index(window.input.schema.field(column_index)) for column_index in needed]
    inner: Node = window.input
    if calc.condition is not None:
        inner = Filter(schema=inner.schema, input=inner, condition=calc.condition)
    columns[time] = replace(columns[time], time=window.input.schema[window.time].time)
    inner = Project(schema=RowSchema(tuple(columns)), input=inner, expressions=tuple(moved))
    table = replace(
        window,
        schema=RowSchema((*columns, *window.schema.columns[-EDGES:])),
        input=inner,
        time=time,
        partition=tuple(partition),
    )
    rows = iter(range(len(moved)))
    positions = [next(rows) if edge is None else len(moved) + edge for edge in edges]
    return replace(
        node,
        input=table,
        keys=tuple(positions[key] for key in node.keys),
        calls=tuple(_moved(call, positions, table.schema) for call in node.calls),
    )


def _moved(call: AggregateCall, positions: Sequence[int], schema: RowSchema) -> AggregateCall:
    """Rewrite a call to other columns."""

    def change(expression: Typed) -> Typed:
        return (
            replace(schema.field(positions[expression.index]), type=expression.type)
            if isinstance(expression, Field)
            else expression
        )

    operands = tuple(transformed(operand, change) for operand in call.operands)
    condition = None if call.condition is None else transformed(call.condition, change)
    order = tuple(replace(key, index=positions[key.index]) for key in call.order)
    return replace(call, operands=operands, condition=condition, order=order)
