"""Prints expressions as SQL; see `printing`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from penstock.table.data.logical_types import literal, quoted
from penstock.table.sql import syntax
from penstock.table.sql.printing import format_path, listed, spaced, to_sql
from penstock.table.sql.syntax import Call, Expression, IntervalQualifier, OrderItem, WindowSpecification
from penstock.table.sql.words import BARE_FUNCTIONS, CALLABLE, RESERVED, SPECIAL

_PREFIXES: Final = {"MINUS_PREFIX": "-", "PLUS_PREFIX": "+", "NOT": "NOT", "FINAL": "FINAL", "RUNNING": "RUNNING"}
_BINARY: Final = frozenset(
    (
        *("OR", "AND", "=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||"),
        *("IS DISTINCT FROM", "IS NOT DISTINCT FROM", "OVERLAPS", "CONTAINS", "EQUALS", "PRECEDES", "SUCCEEDS"),
        *("IMMEDIATELY PRECEDES", "IMMEDIATELY SUCCEEDS", "MEMBER OF", "SUBMULTISET OF"),
        "NOT SUBMULTISET OF",
    )
)


def _printer(kind: type, form: Callable[..., str]) -> None:
    to_sql.register(kind, form)


# --- literals and names ----------------------------------------------------------------------------------------------

_printer(syntax.NullLiteral, lambda _: "NULL")
_printer(syntax.BooleanLiteral, lambda node: {True: "TRUE", False: "FALSE", None: "UNKNOWN"}[node.value])
_printer(syntax.NumberLiteral, lambda node: node.text)
_printer(syntax.TextLiteral, lambda node: literal(node.value))
_printer(syntax.BinaryLiteral, lambda node: f"X'{node.digits}'")
_printer(syntax.Reference, lambda node: format_path(node.path))
_printer(syntax.Star, lambda node: f"{format_path(node.path)}.*" if node.path else "*")
_printer(syntax.Unit, lambda node: node.word)
_printer(syntax.DefaultArgument, lambda _: "DEFAULT")
_printer(syntax.ModelArgument, lambda node: f"MODEL {format_path(node.path)}")
_printer(syntax.NamedArgument, lambda node: f"{quoted(node.name)} => {to_sql(node.value)}")
_printer(syntax.DescriptorArgument, lambda node: f"DESCRIPTOR({', '.join(map(format_path, node.columns))})")


@to_sql.register
def _(node: syntax.TemporalLiteral) -> str:
    root = "TIMESTAMP WITH LOCAL TIME ZONE" if node.root == "TIMESTAMP_LTZ" else node.root
    return f"{root} {literal(node.text)}"


@to_sql.register
def _(node: syntax.TypedLiteral) -> str:
    value = "NULL" if node.value is None else literal(str(node.value))
    return f"CAST({value} AS {node.type.nullable()})"


@to_sql.register
def _(node: syntax.IntervalLiteral) -> str:
    return f"INTERVAL {'-' if node.is_negative else ''}{literal(node.text)} {format_unit(node.qualifier)}"


def format_unit(qualifier: IntervalQualifier) -> str:
    """Print the unit of an interval."""
    words = qualifier.resolution.value.split(" ")
    if qualifier.times > 1:
        words = ["WEEK" if qualifier.times == 7 else "QUARTER"]
    if qualifier.precision is not None:
        fraction = f", {qualifier.fraction}" if words == ["SECOND"] and qualifier.fraction is not None else ""
        words[0] += f"({qualifier.precision}{fraction})"
    if len(words) > 1 and qualifier.fraction is not None:
        words[-1] += f"({qualifier.fraction})"
    return " ".join(words)


# --- operators -------------------------------------------------------------------------------------------------------

_printer(syntax.Item, lambda node: f"{to_sql(node.operand)}[{to_sql(node.index)}]")
_printer(syntax.RowValue, lambda node: f"ROW({listed(node.items)})")
_printer(syntax.LambdaFunction, lambda node: f"({', '.join(map(quoted, node.parameters))}) -> {to_sql(node.body)}")


@to_sql.register
def _(node: syntax.FieldAccess) -> str:
    return f"{to_sql(node.operand)}.{'*' if node.name == '*' else quoted(node.name)}"


@to_sql.register
def _(node: syntax.Cast) -> str:
    return f"{'TRY_CAST' if node.is_try else 'CAST'}({to_sql(node.operand)} AS {node.to.nullable()})"


@to_sql.register
def _(node: syntax.Case) -> str:
    operand = "" if node.operand is None else f" {to_sql(node.operand)}"
    branches = "".join(f" WHEN {to_sql(when)} THEN {to_sql(then)}" for when, then in node.branches)
    otherwise = "" if node.otherwise is None else f" ELSE {to_sql(node.otherwise)}"
    return f"CASE{operand}{branches}{otherwise} END"


@to_sql.register
def _(node: syntax.Between) -> str:
    words = f"{_not(node.is_negated)}BETWEEN{' SYMMETRIC' if node.is_symmetric else ''}"
    return f"({to_sql(node.operand)} {words} {to_sql(node.low)} AND {to_sql(node.high)})"


@to_sql.register
def _(node: syntax.In) -> str:
    return f"({to_sql(node.operand)} {_not(node.is_negated)}IN {_among(node.among)})"


@to_sql.register
def _(node: syntax.Like) -> str:
    escape = "" if node.escape is None else f" ESCAPE {to_sql(node.escape)}"
    return f"({to_sql(node.operand)} {_not(node.is_negated)}{node.kind} {to_sql(node.pattern)}{escape})"


@to_sql.register
def _(node: syntax.Quantified) -> str:
    return f"({to_sql(node.operand)} {node.operator} {node.quantifier} {_among(node.among)})"


@to_sql.register
def _(node: syntax.Exists) -> str:
    return f"{'UNIQUE' if node.is_unique else 'EXISTS'} ({to_sql(node.query)})"


@to_sql.register
def _(node: syntax.Subquery) -> str:
    return f"({to_sql(node.query)})"


@to_sql.register
def _(node: syntax.Collection) -> str:
    if isinstance(node.items, tuple):
        return f"{node.root}[{listed(node.items)}]"
    return node.root + f"({to_sql(node.items)})"


@to_sql.register
def _(node: syntax.TableArgument) -> str:
    partition = f" PARTITION BY ({listed(node.partition)})" if node.partition else ""
    order = f" ORDER BY ({ordered(node.order)})" if node.order else ""
    return f"TABLE ({to_sql(node.query)}){partition}{order}"


def _not(is_negated: bool) -> str:
    return "NOT " if is_negated else ""


def _among(among: tuple[Expression, ...] | syntax.Query) -> str:
    return f"({listed(among)})" if isinstance(among, tuple) else f"({to_sql(among)})"


# --- calls -----------------------------------------------------------------------------------------------------------


@to_sql.register
def _(node: Call) -> str:
    name, operands = node.name, node.operands
    if len(node.path) > 1:
        return f"{format_path(node.path)}({_plain(node)}){_after(node, bool(node.order))}"
    if name in _PREFIXES and len(operands) == 1:
        return f"({_PREFIXES[name]} {to_sql(operands[0])})"
    if name in _BINARY or name.startswith("MULTISET "):
        return f"({f' {name} '.join(map(to_sql, operands))})"
    if name.startswith("IS ") and len(operands) == 1:
        return f"({to_sql(operands[0])} {name})"
    if name in ("NEXT VALUE", "CURRENT VALUE"):
        return f"{name} FOR {to_sql(operands[0])}"
    if name == "MINUS_DATE":
        minuend, other, unit = operands
        assert isinstance(unit, syntax.IntervalLiteral)
        return f"({to_sql(minuend)} - {to_sql(other)}) {format_unit(unit.qualifier)}"
    if name == "INTERVAL":
        unit = operands[1]
        assert isinstance(unit, syntax.IntervalLiteral)
        return f"INTERVAL {'-' * unit.is_negative}({to_sql(operands[0])}) {format_unit(unit.qualifier)}"
    if name in BARE_FUNCTIONS and not operands and len(node.path) == 1:
        return name
    has_order = bool(node.order) and name not in ("ARRAY_AGG", "JSON_ARRAYAGG")
    return f"{_function(node)}({_operands(node)}){_after(node, has_order)}"


def _function(node: Call) -> str:
    (name,) = node.path
    if name in SPECIAL:
        return name
    is_plain = name.isidentifier() and name.isascii() and (name.upper() not in RESERVED or name.upper() in CALLABLE)
    return name if is_plain else quoted(name)


def _operands(node: Call) -> str:
    name, operands = node.name, node.operands
    if name == "EXTRACT":
        return f"{to_sql(operands[0])} FROM {to_sql(operands[1])}"
    if name == "POSITION" and node.path == ("POSITION",):
        beginning = f" FROM {to_sql(operands[2])}" if len(operands) > 2 else ""
        return f"{to_sql(operands[0])} IN {to_sql(operands[1])}{beginning}"
    if name == "TRIM" and node.options:
        characters = f"{to_sql(operands[1])} " if len(operands) > 1 else ""
        return f"{node.options[0]} {characters}FROM {to_sql(operands[0])}"
    if name in ("FLOOR", "CEIL") and len(operands) == 2 and isinstance(operands[1], syntax.Unit):
        return f"{to_sql(operands[0])} TO {to_sql(operands[1])}"
    if name in ("JSON_OBJECT", "JSON_OBJECTAGG"):
        pairs = zip(operands[::2], operands[1::2], strict=True)
        return spaced(", ".join(f"KEY {to_sql(key)} VALUE {to_sql(value)}" for key, value in pairs), *node.options)
    if name == "ARRAY_AGG":
        order = f"ORDER BY {ordered(node.order)}" if node.order else ""
        return spaced("DISTINCT" if node.is_distinct else "", listed(operands), order)
    if name in ("JSON_ARRAY", "JSON_ARRAYAGG"):
        order = f"ORDER BY {ordered(node.order)}" if node.order else ""
        return spaced(listed(operands), order, *node.options)
    if name in ("JSON_EXISTS", "JSON_VALUE", "JSON_QUERY"):
        return _of_json_path(node)
    return _plain(node)


def _plain(node: Call) -> str:
    return ("DISTINCT " if node.is_distinct else "") + listed(node.operands)


def _of_json_path(node: Call) -> str:
    defaults = iter(node.operands[2:])
    options = [
        f"DEFAULT {to_sql(next(defaults))} {option.removeprefix('DEFAULT ')}"
        if option.startswith("DEFAULT ")
        else option
        for option in node.options
    ]
    returning = "" if node.returns is None else f"RETURNING {node.returns}"
    return spaced(listed(node.operands[:2]), returning, *options)


def _after(node: Call, has_order: bool) -> str:
    """Print the clauses after the parentheses of a call."""
    nulls = {True: "RESPECT NULLS", False: "IGNORE NULLS", None: ""}[node.respects_nulls]
    distinct = f"WITHIN DISTINCT ({listed(node.within_distinct)})" if node.within_distinct else ""
    group = f"WITHIN GROUP (ORDER BY {ordered(node.order)})" if has_order else ""
    condition = "" if node.condition is None else f"FILTER (WHERE {to_sql(node.condition)})"
    clauses = spaced(nulls, distinct, group, condition)
    return clauses and f" {clauses}"


# --- order and windows -----------------------------------------------------------------------------------------------


def ordered(items: Iterable[OrderItem]) -> str:
    """Print the items of ORDER BY."""
    return ", ".join(
        spaced(
            to_sql(item.expression),
            "DESC" if item.is_descending else "",
            "" if item.nulls is None else f"NULLS {item.nulls}",
        )
        for item in items
    )


@to_sql.register
def _(node: syntax.Over) -> str:
    window = quoted(node.window) if isinstance(node.window, str) else f"({format_window(node.window)})"
    return f"{to_sql(node.call)} OVER {window}"


def format_window(window: WindowSpecification) -> str:
    """Print a window specification without its parentheses."""
    frame = ""
    if window.unit is not None and window.lower is not None:
        lower = _bound(window.lower)
        frame = f"{window.unit} {lower}"
        if window.upper is not None:
            frame = f"{window.unit} BETWEEN {lower} AND {_bound(window.upper)}"
    return spaced(
        "" if window.base is None else quoted(window.base),
        f"PARTITION BY {listed(window.partition)}" if window.partition else "",
        f"ORDER BY {ordered(window.order)}" if window.order else "",
        frame,
        "" if window.exclusion is None else f"EXCLUDE {window.exclusion}",
        "DISALLOW PARTIAL" if window.disallows_partial else "",
    )


def _bound(bound: syntax.Bound) -> str:
    if bound.direction == "CURRENT ROW":
        return bound.direction
    return f"{'UNBOUNDED' if bound.distance is None else to_sql(bound.distance)} {bound.direction}"
