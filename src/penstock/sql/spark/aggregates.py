"""Groups and their aggregates in Spark SQL, and aggregate functions over windows.

Spark's own functions are used where they return the same results. All others gather their operands in lists, and the
accumulators of streams evaluate these in a following step (`kernels`). So functions that Spark lacks also run over
groups and windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.sql.analyzer.select import is_of_windows
from penstock.sql.data.types import (
    ArrayType,
    BigIntType,
    BitmapType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    RawType,
    RowType,
    VariantType,
)
from penstock.sql.functions.definition import BIGINT
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.nodes import AggregateCall, RowSchema
from penstock.sql.optimizer.pushdown import extract_calc
from penstock.sql.spark.kernels import Accumulated
from penstock.sql.spark.native import raised, wrapped
from penstock.sql.spark.planning import BatchPlanner, Source, column, select, with_maps
from penstock.sql.spark.stored import group_text, has_maps, key_text, spark_type, text_literal, value_text
from penstock.sql.stream.windows.plan import below_window
from penstock.sql.typed import Constant, Typed

_UNORDERED: Final = (ArrayType, MapType, RowType, RawType, VariantType, BitmapType, NullType)
_VARIANCES: Final = {
    "STDDEV_POP": "stddev_pop",
    "STDDEV_SAMP": "stddev_samp",
    "STDDEV": "stddev_samp",
    "VAR_POP": "var_pop",
    "VAR_SAMP": "var_samp",
    "VARIANCE": "var_samp",
}
_RANKS: Final = {
    "ROW_NUMBER": "row_number()",
    "RANK": "rank()",
    "DENSE_RANK": "dense_rank()",
    "PERCENT_RANK": "percent_rank()",
    "CUME_DIST": "cume_dist()",
}
#: functions that use the whole partition, not a frame
WITHOUT_FRAME: Final = frozenset({*_RANKS, "NTILE", "LAG", "LEAD"})
#: functions that duplicates do not affect
_ALIKE_IF_DISTINCT: Final = frozenset({"MIN", "MAX"})
#: Digits that Spark's sum of decimals has in addition to its operand: enough for the rows of any table.
_SUM_DIGITS: Final = 10
#: Digits of decimals whose sum cannot overflow, however many rows there are.
_PART_DIGITS: Final = 38 - _SUM_DIGITS
#: With a larger scale, Spark's `+` drops the last digit of the fraction if the sum may have 39 digits.
_EXACT_SCALE_MAX: Final = 6


@dataclass(frozen=True, slots=True)
class Over:
    """How a Spark aggregate is called: for a group, or over a window.

    `frame`: the frame of the window, for functions that use one.
    """

    window: str | None = None
    frame: str = ""

    def __call__(self, aggregate: str) -> str:
        """Return the call of an aggregate."""
        return aggregate if self.window is None else f"{aggregate} OVER ({self.window} {self.frame})"


def native_aggregate(call: AggregateCall, operands: Sequence[str], condition: str | None, over: Over) -> str | None:
    """Return a call as an expression over Spark's aggregates; None if its operands must be gathered.

    `condition`: limits the call to rows that meet it.
    """
    if call.is_distinct and over.window is not None and call.function not in _ALIKE_IF_DISTINCT:
        return None
    if call.function in WITHOUT_FRAME:
        return _of_partition(call, operands, Over(over.window))
    make = _MAKE.get(call.function)
    return None if make is None else make(call, [_kept(operand, condition) for operand in operands], condition, over)


def gathered(call: AggregateCall, operands: Sequence[str], condition: str | None, over: Over) -> str:
    """Gather the operands of all rows in a list of structs."""
    fields = ", ".join(f"'f{index}', {operand}" for index, operand in enumerate(operands))
    entry = f"named_struct({fields})" if operands else "named_struct('f0', true)"
    return over(f"collect_list({_kept(entry, condition)})")


def _kept(operand: str, condition: str | None) -> str:
    """Return an operand that is NULL, and so ignored, unless the condition is true."""
    return operand if condition is None else f"CASE WHEN {condition} THEN {operand} END"


def _distinct(call: AggregateCall) -> str:
    return "DISTINCT " if call.is_distinct and call.function not in _ALIKE_IF_DISTINCT else ""


def _count(call: AggregateCall, operands: Sequence[str], condition: str | None, over: Over) -> str | None:
    if not operands:
        return over(f"count({'1' if condition is None else _kept('1', condition)})")
    if any(isinstance(operand.type, NullType) for operand in call.operands):
        return None
    if not call.is_distinct:
        return over(f"count({', '.join(operands)})")
    # Spark 4.0 treats maps with the same entries in another order as different.
    keys = [
        key_text(text, operand.type) if has_maps(operand.type) else text
        for text, operand in zip(operands, call.operands, strict=True)
    ]
    compared = [key for key in keys if key is not None]
    return over(f"count(DISTINCT {', '.join(compared)})") if len(compared) == len(keys) else None


def _distinct_count(call: AggregateCall, operands: Sequence[str], condition: str | None, over: Over) -> str | None:
    if over.window is not None or isinstance(call.operands[0].type, _UNORDERED):
        return None
    return f"count(DISTINCT {operands[0]})"


def _total(call: AggregateCall, operand: str, over: Over) -> str | None:
    """Return the sum: of whole numbers in eight bytes, of decimals with Spark's digits, of others as a DOUBLE."""
    kind = call.operands[0].type
    if isinstance(kind, BigIntType):
        if call.is_distinct:
            return None
        # Halves, because Spark may refuse a sum that leaves the type: here it begins again at the other end.
        low = over(f"sum({operand} & 4294967295L)")
        high = over(f"sum(shiftright({operand}, 32))")
        return f"(shiftleft({high} + shiftright({low}, 32), 32) | ({low} & 4294967295L))"
    if isinstance(kind, IntegralType):
        return over(f"sum({_distinct(call)}CAST({operand} AS BIGINT))")
    if isinstance(kind, DecimalType):
        # A sum has ten more digits than its operand, enough for all rows.
        if kind.precision + _SUM_DIGITS <= 38:
            return over(f"sum({_distinct(call)}{operand})")
        if call.is_distinct or kind.scale > _EXACT_SCALE_MAX:
            return over(f"try_sum({_distinct(call)}{operand})")
        return _exact_total(kind, operand, over)
    if isinstance(kind, FloatType | DoubleType):
        return over(f"sum({_distinct(call)}CAST({operand} AS DOUBLE))")
    return None


def _exact_total(kind: DecimalType, operand: str, over: Over) -> str:
    """Return the exact sum of decimals of 29 to 38 digits. Spark's own sum may overflow midway and then stays NULL.

    Values of up to 28 digits are summed directly. Larger values are summed in two parts, of 28 and of 10 digits.
    """
    integer_digits = _PART_DIGITS - kind.scale
    divisor, least = (f"CAST('{sign}1{'0' * integer_digits}' AS DECIMAL({integer_digits + 1},0))" for sign in ("", "-"))
    scaled = f"DECIMAL(38,{kind.scale})"
    # Spark's abs() rounds to 34 digits.
    is_small = f"({operand} < {divisor} AND {operand} > {least})"
    small = over(f"try_sum(CASE WHEN {is_small} THEN {operand} END)")
    rest = f"CAST({operand} % {divisor} AS DECIMAL({_PART_DIGITS},{kind.scale}))"
    low = over(f"sum(CASE WHEN NOT {is_small} THEN {rest} END)")
    high = over(
        f"sum(CASE WHEN NOT {is_small} THEN CAST(({operand} - {operand} % {divisor}) / {divisor} AS DECIMAL(10,0)) END)"
    )
    great = f"try_add(try_cast(try_multiply({high}, {divisor}) AS {scaled}), CAST({low} AS {scaled}))"
    zero = f"CAST(0 AS {scaled})"
    total = f"try_add(coalesce({small}, {zero}), CASE WHEN {low} IS NULL THEN {zero} ELSE {great} END)"
    return f"CASE WHEN {small} IS NOT NULL OR {low} IS NOT NULL THEN {total} END"


def _sum(call: AggregateCall, operands: Sequence[str], condition: str | None, over: Over) -> str | None:
    text = _total(call, operands[0], over)
    if text is None:
        return None
    kind = call.type
    text = wrapped(text, kind) if isinstance(kind, IntegralType) else f"CAST({text} AS {spark_type(kind)})"
    return text if call.function == "SUM" else f"coalesce({text}, CAST(0 AS {spark_type(kind)}))"


def _average(call: AggregateCall, operands: Sequence[str], condition: str | None, over: Over) -> str | None:
    operand_type, kind = call.operands[0].type, call.type
    if isinstance(operand_type, FloatType | DoubleType):
        return f"CAST({over(f'avg({_distinct(call)}CAST({operands[0]} AS DOUBLE))')} AS {spark_type(kind)})"
    count = over(f"count({_distinct(call)}{operands[0]})")
    if isinstance(operand_type, DecimalType) and isinstance(kind, DecimalType):
        if operand_type.scale + 4 == kind.scale and operand_type.precision + _SUM_DIGITS <= 38:
            return f"CAST({over(f'avg({_distinct(call)}{operands[0]})')} AS {spark_type(kind)})"
        mean = f"try_divide({_total(call, operands[0], over)}, CAST({count} AS DECIMAL(19,0)))"
        return f"CAST({mean} AS {spark_type(kind)})"
    total = _total(call, operands[0], over)
    if total is None or not isinstance(operand_type, IntegralType):
        return None
    return f"CAST({total} div nullif({count}, 0L) AS {spark_type(kind)})"


def _extreme(call: AggregateCall, operands: Sequence[str], condition: str | None, over: Over) -> str | None:
    if isinstance(call.operands[0].type, _UNORDERED):
        return None
    text = over(f"{call.function.lower()}({operands[0]})")
    kind = call.operands[0].type
    # Return 0.0 for both zeros.
    return f"({text} + CAST(0 AS {spark_type(kind)}))" if isinstance(kind, FloatType | DoubleType) else text


def _variance(call: AggregateCall, operands: Sequence[str], condition: str | None, over: Over) -> str | None:
    """Return the variance or standard deviation of a DOUBLE.

    For other types, the accumulator truncates the result to the operand's type.
    """
    if not isinstance(call.operands[0].type, DoubleType) or call.is_distinct:
        return None
    return over(f"{_VARIANCES[call.function]}({operands[0]})")


def _end(call: AggregateCall, operands: Sequence[str], condition: str | None, over: Over) -> str | None:
    """Return the first or last value that is not NULL."""
    if call.is_distinct:
        return None
    return over(f"{call.function.lower()}({operands[0]}, true)")


def _single(call: AggregateCall, operands: Sequence[str], condition: str | None, over: Over) -> str | None:
    kind = spark_type(call.type)
    error = raised("SingleValueAggFunction received more than one element.", kind)
    rows = over(f"count({'1' if condition is None else _kept('1', condition)})")
    return f"(CASE WHEN {rows} > 1 THEN {error} ELSE {over(f'first({operands[0]}, true)')} END)"


def _list(call: AggregateCall, operands: Sequence[str], condition: str | None, over: Over) -> str | None:
    """Return LISTAGG with a constant separator."""
    separator = call.operands[1] if len(call.operands) > 1 else Constant(call.type, ",")
    if not isinstance(separator, Constant) or not isinstance(separator.value, str) or call.is_distinct:
        return None
    texts = over(f"collect_list({operands[0]})")
    return f"(CASE WHEN size({texts}) > 0 THEN array_join({texts}, {text_literal(separator.value)}) END)"


def _of_partition(call: AggregateCall, operands: Sequence[str], over: Over) -> str | None:
    """Return row numbers and ranks, or values of other rows."""
    kind = spark_type(call.type)
    if call.function in _RANKS:
        return f"CAST({over(_RANKS[call.function])} AS {kind})"
    numbers = [operand.value for operand in call.operands if isinstance(operand, Constant)]
    if call.function == "NTILE":
        return f"CAST({over(f'ntile({numbers[0]})')} AS {kind})"
    offset = call.operands[1] if len(call.operands) > 1 else Constant(BigIntType(), 1)
    if not isinstance(offset, Constant) or not isinstance(offset.value, int):
        return None
    parts = [operands[0], str(offset.value)]
    if len(operands) > 2:
        parts.append(f"CAST({operands[2]} AS {kind})")
        parts[0] = f"CAST({operands[0]} AS {kind})"
    nulls = " IGNORE NULLS" if "IGNORE NULLS" in call.options else ""
    return over(f"{call.function.lower()}({', '.join(parts)}){nulls}")


_Make = Callable[[AggregateCall, Sequence[str], str | None, Over], str | None]

_MAKE: Final[dict[str, _Make]] = {
    "COUNT": _count,
    "APPROX_COUNT_DISTINCT": _distinct_count,
    "SUM": _sum,
    "SUM0": _sum,
    "$SUM0": _sum,
    "AVG": _average,
    "MIN": _extreme,
    "MAX": _extreme,
    **dict.fromkeys(_VARIANCES, _variance),
    "FIRST_VALUE": _end,
    "LAST_VALUE": _end,
    "SINGLE_VALUE": _single,
    "LISTAGG": _list,
}


def gathered_type(call: AggregateCall) -> DataType:
    """Return the type of the list that `gathered` builds, as a column of the plan."""
    from penstock.sql.data.types import BooleanType, RowField

    kinds = [operand.type for operand in call.operands] or [BooleanType()]
    return ArrayType(RowType([RowField(f"f{index}", kind) for index, kind in enumerate(kinds)]))


def aggregate(planner: BatchPlanner, node: logical.Aggregate) -> str:
    """Return a row for each group, or for each group of every grouping set."""
    if () in node.groupings:
        return planner.query(_by_group_id(node))
    node = _of_sessions(planner, node)
    source = project_operands(planner, planner.query(node.input), node.input.schema, node.calls, node.keys)
    texts, gathered_calls = render_calls(node.calls, source.texts, Over())
    kinds = [node.input.schema[key].type.nullable() for key in node.keys]
    keys = [group_text(column(key), kind) for key, kind in zip(node.keys, kinds, strict=True)]
    groupings = [_grouping(node, keys, grouping) for grouping in node.groupings]
    query = select([*_shown(node, keys, kinds), *groupings, *texts], source.query, _groups(node, keys))
    if any(map(has_maps, kinds)):
        columns = map(column, range(len(kinds) + len(groupings) + len(texts)))
        query = select([value_text(next(columns), kind) for kind in kinds] + list(columns), query)
    result = accumulated(planner, query, [*kinds, *(BIGINT for _ in groupings)], node.calls, gathered_calls)
    if not groupings:
        return result
    # The columns of the groupings come after the columns of the calls.
    first, last = len(kinds), len(kinds) + len(groupings)
    order = [*range(first), *range(last, last + len(node.calls)), *range(first, last)]
    return select(list(map(column, order)), result)


def _is_used(node: logical.Aggregate, key: int) -> bool:
    """Return whether some grouping set has a key. Spark knows no other keys."""
    return not node.sets or any(key in grouping_set for grouping_set in node.sets)


def _shown(node: logical.Aggregate, keys: Sequence[str], kinds: Sequence[DataType]) -> list[str]:
    return [
        text if _is_used(node, key) else f"CAST(NULL AS {spark_type(kind)})"
        for key, (text, kind) in enumerate(zip(keys, kinds, strict=True))
    ]


def _grouping(node: logical.Aggregate, keys: Sequence[str], grouping: Sequence[int]) -> str:
    """Return GROUPING of keys: one bit per key, which is 1 if a set omits the key."""
    bits = [
        f"shiftleft({f'CAST(grouping({keys[key]}) AS BIGINT)' if _is_used(node, key) else '1L'}, {bit})"
        for bit, key in enumerate(reversed(grouping))
    ]
    return f"({' + '.join(bits)})"


def _by_group_id(node: logical.Aggregate) -> logical.Node:
    """Rewrite groups with GROUP_ID, which Spark lacks: first the groups of sets with the id 0, then 1, and so on."""
    ids, width = node.group_ids(), len(node.keys) + len(node.calls)
    grouping_indexes = [position for position, keys in enumerate(node.groupings) if keys]
    columns = [*node.schema.columns[:width], *(node.schema[width + position] for position in grouping_indexes)]
    parts: list[logical.Node] = []
    for group_id in range(max(ids) + 1):
        groups = replace(
            node,
            schema=RowSchema(tuple(columns)),
            sets=tuple(grouping_set for grouping_set, its in zip(node.sets, ids, strict=True) if its == group_id),
            groupings=tuple(node.groupings[position] for position in grouping_indexes),
        )
        expressions: list[Typed] = list(groups.schema.fields()[:width])
        for index in range(len(node.groupings)):
            is_id = index not in grouping_indexes
            expressions.append(
                Constant(BIGINT.not_null(), group_id)
                if is_id
                else groups.schema.field(width + grouping_indexes.index(index))
            )
        parts.append(logical.Project(schema=node.schema, input=groups, expressions=tuple(expressions)))
    return logical.SetOperation(schema=node.schema, operator="UNION", parts=tuple(parts), is_all=True)


def distinct(planner: BatchPlanner, node: logical.Distinct) -> str:
    """Return each distinct row once."""
    types = node.schema.types
    grouped = logical.Aggregate(schema=node.schema, input=node.input, keys=tuple(range(len(types))), calls=())
    if (of_sessions := _of_sessions(planner, grouped)) is not grouped:
        return aggregate(planner, of_sessions)
    texts = [group_text(column(index), kind) for index, kind in enumerate(types)]
    select_list = ", ".join(f"{text} AS {column(index)}" for index, text in enumerate(texts))
    return with_maps(f"SELECT DISTINCT {select_list or 'c0'} FROM ({planner.query(node.input)})", types)


def _of_sessions(planner: BatchPlanner, node: logical.Aggregate) -> logical.Aggregate:
    """Move the filters of a session aggregate below the sessions, as in streams; return other nodes unchanged."""
    if not is_of_windows(node):
        return node
    calc = extract_calc(node.input, planner.calls)
    if not isinstance(calc.input, logical.WindowTable) or calc.input.kind != "SESSION" or calc.condition is None:
        return node
    return below_window(node, calc) or node


def _groups(node: logical.Aggregate, keys: Sequence[str]) -> str:
    if node.sets:
        sets = ", ".join("(" + ", ".join(keys[key] for key in grouping_set) + ")" for grouping_set in node.sets)
        return f" GROUP BY GROUPING SETS ({sets})"
    return f" GROUP BY {', '.join(keys)}" if keys else ""


def project_operands(
    planner: BatchPlanner, query: str, schema: RowSchema, calls: Sequence[AggregateCall], kept: Sequence[int]
) -> Source:
    """Return the operands and conditions of all calls, one after another."""
    expressions: list[Typed] = []
    for call in calls:
        expressions += [*call.operands, *([] if call.condition is None else [call.condition])]
    return planner.over(query, schema, expressions, kept)


def render_calls(calls: Sequence[AggregateCall], texts: Sequence[str], over: Over) -> tuple[list[str], list[int]]:
    """Return the text of each call, and the indexes of the calls that gather their operands."""
    rest = iter(texts)
    call_texts: list[str] = []
    gathered_calls: list[int] = []
    for number, call in enumerate(calls):
        operands = [next(rest) for _ in call.operands]
        condition = None if call.condition is None else next(rest)
        text = native_aggregate(call, operands, condition, over)
        if text is None:
            text = gathered(call, operands, condition, over)
            gathered_calls.append(number)
        call_texts.append(text)
    return call_texts, gathered_calls


def accumulated(
    planner: BatchPlanner,
    query: str,
    before: Sequence[DataType],
    calls: Sequence[AggregateCall],
    gathered_calls: Sequence[int],
) -> str:
    """Return a query with the columns `before` and one column per call, with the gathered operands aggregated."""
    if not gathered_calls:
        return query
    width = len(before)
    takes = [
        *before,
        *(gathered_type(call) if number in gathered_calls else call.type for number, call in enumerate(calls)),
    ]
    work = Accumulated(tuple((width + number, calls[number]) for number in gathered_calls), planner.session)
    return f"SELECT * FROM {planner.step(query, work, takes, [*before, *(call.type for call in calls)])}"
