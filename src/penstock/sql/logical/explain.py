"""Formats plans for EXPLAIN, one line per node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.sql.logical import nodes as logical
from penstock.sql.logical.nodes import (
    Aggregated,
    MatchedExpression,
    MatchRecognize,
    MatchTime,
    Navigation,
    RowReference,
    RowSchema,
    Variable,
)
from penstock.sql.typed import Constant, Field, FunctionCall, Typed

_INFIX: Final = frozenset({"=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "AND", "OR", "||"})


def expression_text(node: Typed, names: list[str]) -> str:
    """Return the text of an expression over columns of these names."""
    match node:
        case Field():
            return names[node.index] if node.index < len(names) else str(node)
        case Constant():
            return _constant(node)
        case FunctionCall(function=name) if name in _INFIX:
            return "(" + f" {name} ".join(expression_text(operand, names) for operand in node.operands) + ")"
        case FunctionCall(function="CAST" | "TRY_CAST"):
            return f"{node.function}({expression_text(node.operands[0], names)} AS {node.type.nullable()})"
        case FunctionCall(function=name) if name.startswith("IS "):
            return f"{expression_text(node.operands[0], names)} {name}"
        case FunctionCall():
            return f"{node.function}({', '.join(expression_text(operand, names) for operand in node.operands)})"
        case _:
            return str(node)


def _constant(node: Constant) -> str:
    if node.value is None:
        return f"NULL:{node.type}"
    return "'" + node.value.replace("'", "''") + "'" if isinstance(node.value, str) else str(node.value)


def name_columns(*nodes: logical.Node) -> list[str]:
    """Return the column names of several nodes. Repeated names get a number as a suffix."""
    unique: list[str] = []
    for name in (name for node in nodes for name in node.schema.names):
        number = 0
        while name + (str(number - 1) if number else "") in unique:
            number += 1
        unique.append(name + (str(number - 1) if number else ""))
    return unique


def plan_text(plan: logical.Node) -> str:
    """Return the text of a plan: each node with its inputs indented below it."""
    lines: list[str] = []

    def add(node: logical.Node, depth: int) -> None:
        lines.append("  " * depth + node_text(node))
        for inner in node.inputs():
            add(inner, depth + 1)

    add(plan, 0)
    return "\n".join(lines)


def node_text(node: logical.Node) -> str:
    """Return the line of one node."""
    describe = _DESCRIBE.get(type(node))
    is_async = isinstance(node, logical.Correlate) and node.user is not None and node.user.is_async
    name = f"{'Async' if is_async else ''}{type(node).__name__}"
    return f"{name}({describe(node)})" if describe is not None else name


def _watermark(node: logical.WatermarkAssigner) -> str:
    names = name_columns(node.input)
    parts = [
        f"rowtime=[{node.schema.names[node.column]}]",
        f"watermark=[{expression_text(node.expression, names)}]",
    ]
    if node.drops_null:
        parts.append("nullTime=[drop]" if node.route is None else f"nullTime=[route to {'.'.join(node.route.path)}]")
    return ", ".join(parts)


def _project(node: Any) -> str:
    return _select(node.input, node.expressions, node.schema)


def _select(rows: logical.Node, expressions: Sequence[Typed], schema: RowSchema) -> str:
    names = name_columns(rows)
    items = []
    for expression, column in zip(expressions, schema, strict=True):
        text = expression_text(expression, names)
        items.append(text if text == column.name else f"{text} AS {column.name}")
    return f"select=[{', '.join(items)}]"


def calc_text(
    rows: logical.Node, condition: Typed | None, expressions: Sequence[Typed] | None, schema: RowSchema
) -> str:
    """Return the line of a step that filters rows and computes columns; without expressions it keeps all columns."""
    parts = [_select(rows, rows.schema.fields() if expressions is None else expressions, schema)]
    parts += [] if condition is None else [f"where={expression_text(condition, name_columns(rows))}"]
    return f"Calc({', '.join(parts)})"


def window_aggregate_text(node: logical.Aggregate, window: logical.WindowTable) -> str:
    """Return the line of a step that assigns windows to rows and aggregates by window."""
    return f"WindowAggregate(window=[{_window(window)}], {_aggregate(node)})"


def _aggregate(node: Any) -> str:
    names = name_columns(node.input)
    calls = [
        f"{_call(call, names)} AS {column.name}"
        for call, column in zip(node.calls, node.schema.columns[len(node.keys) :], strict=False)
    ]
    keys = ", ".join(names[key] for key in node.keys)
    sets = ", ".join("{" + ", ".join(names[key] for key in key_set) + "}" for key_set in node.sets)
    parts = [f"groupBy=[{keys}]"] if node.keys else []
    parts += [f"groups=[{sets}]"] if node.sets else []
    return ", ".join([*parts, f"select=[{', '.join(calls)}]"])


def _expand(node: Any) -> str:
    names = name_columns(node.input)
    rows = ", ".join(
        "{" + ", ".join(expression_text(expression, names) for expression in row) + "}" for row in node.projections
    )
    return f"projects=[{rows}]"


def _call(call: logical.AggregateCall, names: list[str]) -> str:
    operands = ", ".join(expression_text(operand, names) for operand in call.operands) or "*" * (
        call.function == "COUNT"
    )
    text = f"{call.function}({'DISTINCT ' if call.is_distinct else ''}{operands})"
    return text if call.condition is None else f"{text} FILTER {expression_text(call.condition, names)}"


def _sort(node: Any) -> str:
    names = name_columns(node.input)
    order = [f"{names[key.index]} {'DESC' if key.is_descending else 'ASC'}" for key in node.keys]
    parts = [f"orderBy=[{', '.join(order)}]"] if order else []
    parts += [f"offset={node.offset}"] if node.offset else []
    return ", ".join(parts + ([f"fetch={node.fetch}"] if node.fetch is not None else []))


def _join(node: Any) -> str:
    names = name_columns(node.left, node.right)
    return f"joinType={node.join_type.value}, where={expression_text(node.condition, names)}"


def _lookup(node: Any) -> str:
    names, columns = node.input.schema.names, node.table.schema.names
    pairs = zip(node.key, node.key_values, strict=True)
    keys = ", ".join(f"{columns[index]}={expression_text(value, names)}" for index, value in pairs)
    parts = [f"table=[{'.'.join(node.table.path)}]", f"joinType={node.join_type.value}", f"lookup=[{keys}]"]
    parts += [f"lookupWhere={expression_text(node.where, columns)}"] if node.where is not None else []
    conditions = [
        expression_text(condition, node.schema.names)
        for condition in (node.asks, node.condition)
        if condition is not None
    ]
    parts += [f"where={' AND '.join(conditions)}"] if conditions else []
    return ", ".join(parts)


def _over(node: Any) -> str:
    names = name_columns(node.input)
    calls = ", ".join(_call(call, names) for call in node.calls)
    partition = ", ".join(names[index] for index in node.partition)
    order = ", ".join(f"{names[key.index]} {'DESC' if key.is_descending else 'ASC'}" for key in node.order)
    unit = "ROWS" if node.is_rows else "RANGE"
    return f"partitionBy=[{partition}], orderBy=[{order}], {unit}, select=[{calls}]"


def _table_aggregate(node: Any) -> str:
    names = name_columns(node.input)
    keys = ", ".join(names[key] for key in node.keys)
    parts = [f"groupBy=[{keys}]"] if keys else []
    return ", ".join([*parts, f"select=[{_call(node.call, names)}]"])


def _rank(node: Any) -> str:
    names = name_columns(node.input)
    partition = ", ".join(names[index] for index in node.partition)
    order = ", ".join(f"{names[key.index]} {'DESC' if key.is_descending else 'ASC'}" for key in node.order)
    end = node.end if node.end_column is None else names[node.end_column]
    numbers = f"rankStart={node.start}, rankEnd={end}"
    return f"rankType=[ROW_NUMBER], rankRange=[{numbers}], partitionBy=[{partition}], orderBy=[{order}]"


def _window(node: Any) -> str:
    sizes = ", ".join(f"{size} ms" for size in node.sizes)
    return f"{node.kind}({name_columns(node.input)[node.time]}, {sizes})"


def _changelog(node: Any, operation: str) -> str:
    codes = ", ".join(f"{code}={other}" for code, other in node.codes)
    partition = ", ".join(name_columns(node.input)[index] for index in node.partition)
    return ", ".join(
        [*([f"partitionBy=[{partition}]"] if node.partition else []), f"op=[{operation}]", f"op_mapping=[{codes}]"]
    )


def _correlate(node: Any) -> str:
    operands = ", ".join(expression_text(operand, name_columns(node.input)) for operand in node.operands)
    call = f"{node.function}({operands})" + "".join(f" {option}" for option in node.options)
    parts = [call, f"joinType={'LEFT' if node.keeps else 'INNER'}"]
    if node.condition is not None:
        parts.append(f"where={expression_text(node.condition, node.schema.names)}")
    return ", ".join(parts)


def _ml_predict(node: Any) -> str:
    names = name_columns(node.input)
    columns = ", ".join(
        names[part.index] for argument in node.arguments for part in argument.walk() if isinstance(part, Field)
    )
    config = ", ".join(f"'{text}'" for pair in node.model.settings for text in pair)
    operands = [f"Model(MODEL {'.'.join(node.model.path)})", f"DESCRIPTOR({columns})"]
    operands.append(f"MAP({config})" if config else "DEFAULT()")
    return f"invocation=[ML_PREDICT(TABLE(#0), {', '.join(operands)})], select=[{', '.join(node.schema.names)}]"


def _vector_search(node: Any) -> str:
    parts = [
        f"table=[{'.'.join(node.table.path)}]",
        f"joinType=[{'LeftOuterJoin' if node.keeps else 'InnerJoin'}]",
        f"columnToSearch=[{node.table.schema.names[node.column]}]",
        f"columnToQuery=[{expression_text(node.query, name_columns(node.input))}]",
        f"topK=[{node.top_k}]",
    ]
    if node.condition is not None:
        parts.append(f"where=[{expression_text(node.condition, node.schema.names)}]")
    return ", ".join([*parts, f"select=[{', '.join(node.schema.names)}]"])


def _process(node: logical.ProcessTableFunction) -> str:
    by_name = dict(zip((table.name for table in node.tables), range(len(node.tables)), strict=True))
    values = dict(node.values)
    operands = []
    for argument in node.user.signature.arguments:
        if argument.name in by_name:
            number = by_name[argument.name]
            operands.append(_table_operand(node.tables[number], number))
            continue
        value = values[argument.name]
        if value is None:
            operands.append("DEFAULT()")
        elif isinstance(value, tuple):
            operands.append(f"DESCRIPTOR({', '.join(value)})")
        else:
            operands.append(expression_text(value, []))
    times = dict.fromkeys(table.names[table.time] for table in node.tables if table.time >= 0)
    operands.append(f"DESCRIPTOR({', '.join(times)})" if times else "DEFAULT()")
    operands.append("DEFAULT()" if node.uid is None else f"'{node.uid}'")
    parts = [f"invocation=[{node.function}({', '.join(operands)})]"]
    parts += [f"uid=[{node.uid}]"] if node.uid is not None else []
    columns = ", ".join(f"{column} {column.name}" for column in node.schema)
    return ", ".join([*parts, f"select=[{','.join(node.schema.names)}]", f"rowType=[RecordType({columns})]"])


def _table_operand(table: logical.TableInput, number: int) -> str:
    names = table.names
    text = f"TABLE(#{number})"
    if table.partition:
        text += f" PARTITION BY({', '.join(names[index] for index in table.partition)})"
    if table.order:
        keys = [f"{names[key.index]} {'DESC' if key.is_descending else 'ASC'}" for key in table.order]
        text += f" ORDER BY({', '.join(keys)})"
    return text


def _match(node: MatchRecognize) -> str:
    names = name_columns(node.input)
    count = len(node.partition)
    partition = ", ".join(names[index] for index in node.partition)
    order = ", ".join(f"{names[key.index]} {'DESC' if key.is_descending else 'ASC'}" for key in node.order)
    measures = [
        f"{_matched(measure, names)} AS {column.name}"
        for measure, column in zip(node.measures, node.schema.columns[count:], strict=True)
    ]
    defined = [
        f"{variable.name} AS {_matched(variable.condition, names)}"
        for variable in node.pattern
        if variable.condition is not None
    ]
    parts = [f"partitionBy=[{partition}]"] if partition else []
    parts += [f"orderBy=[{order}]", f"measures=[{', '.join(measures)}]", "rowsPerMatch=[ONE ROW PER MATCH]"]
    skip = f"{node.strategy.skip.value} {node.strategy.stage}".strip().upper()
    parts += [f"after=[SKIP {skip}]", f"pattern=[{' '.join(map(_variable, node.pattern))}]"]
    parts += [f"within=[{node.within_ms} ms]"] if node.within_ms is not None else []
    return ", ".join([*parts, f"define=[{', '.join(defined)}]"])


def _variable(variable: Variable) -> str:
    most = "" if variable.most is None else variable.most
    times = (
        "" if (variable.least, variable.most) == (1, 1) else f"{{{variable.least},{most}}}{'?' * variable.is_reluctant}"
    )
    return f"{variable.name}{times}"


def _matched(expression: MatchedExpression, names: list[str]) -> str:
    """Return the text of an expression over the rows of pattern variables."""
    return expression_text(expression.expression, [_referred(reference, names) for reference in expression.references])


def _referred(reference: RowReference, names: list[str]) -> str:
    match reference:
        case Navigation():
            function = "FIRST" if reference.is_first else "LAST"
            return f"{function}({reference.variable or '*'}.{names[reference.column]}, {reference.offset})"
        case Aggregated():
            return _call(reference.call, [f"{reference.variable or '*'}.{name}" for name in names])
        case MatchTime():
            return "MATCH_ROWTIME()"


_DESCRIBE: Final[dict[type[logical.Node], Callable[[Any], str]]] = {
    logical.Scan: lambda node: ", ".join(
        [f"table=[{'.'.join(node.path)}]", f"fields=[{', '.join(node.schema.names)}]", *node.pushed]
    ),
    logical.Values: lambda node: f"{len(node.rows)} rows, fields=[{', '.join(node.schema.names)}]",
    logical.ArrowRows: lambda node: f"{node.data.num_rows} rows, fields=[{', '.join(node.schema.names)}]",
    logical.StreamRows: lambda node: f"stream=[{node.title}], fields=[{', '.join(node.schema.names)}]",
    logical.Project: _project,
    logical.Filter: lambda node: f"where={expression_text(node.condition, name_columns(node.input))}",
    logical.WatermarkAssigner: _watermark,
    logical.RejectedRows: lambda node: (
        f"table=[{'.'.join(node.table.path)}], where=[{node.schema.names[node.time]} IS NULL]"
    ),
    logical.ChangelogNormalize: lambda node: f"key=[{', '.join(name_columns(node.input)[key] for key in node.key)}]",
    logical.Join: _join,
    logical.TemporalJoin: _join,
    logical.LookupJoin: _lookup,
    logical.Aggregate: _aggregate,
    logical.Expand: _expand,
    logical.Replicate: lambda node: f"times=[{node.input.schema.names[-1]}]",
    logical.TableAggregate: _table_aggregate,
    logical.SetOperation: lambda node: f"{node.operator}{' ALL' if node.is_all else ''}",
    logical.Sort: _sort,
    logical.Over: _over,
    logical.Rank: _rank,
    logical.WindowTable: _window,
    logical.FromChangelog: lambda node: _changelog(node, name_columns(node.input)[node.operation]),
    logical.ToChangelog: lambda node: _changelog(node, node.schema.names[len(node.partition)]),
    logical.Correlate: _correlate,
    logical.MLPredictTableFunction: _ml_predict,
    logical.VectorSearchTableFunction: _vector_search,
    logical.ProcessTableFunction: _process,
    MatchRecognize: _match,
    logical.Write: lambda node: f"table=[{'.'.join(node.path)}]",
}
