"""Prints expressions as SQL; see `printing`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from penstock.table.data.logical_types import literal, quoted
from penstock.table.sql import syntax
from penstock.table.sql.printing import listed, path_of, spaced, sql_of
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
    sql_of.register(kind, form)


# --- literals and names ----------------------------------------------------------------------------------------------

_printer(syntax.NullLiteral, lambda _: "NULL")
_printer(syntax.BooleanLiteral, lambda node: {True: "TRUE", False: "FALSE", None: "UNKNOWN"}[node.value])
_printer(syntax.NumberLiteral, lambda node: node.text)
_printer(syntax.TextLiteral, lambda node: literal(node.value))
_printer(syntax.BinaryLiteral, lambda node: f"X'{node.digits}'")
_printer(syntax.Reference, lambda node: path_of(node.path))
_printer(syntax.Star, lambda node: f"{path_of(node.path)}.*" if node.path else "*")
_printer(syntax.Unit, lambda node: node.word)
_printer(syntax.DefaultArgument, lambda _: "DEFAULT")
_printer(syntax.ModelArgument, lambda node: f"MODEL {path_of(node.path)}")
_printer(syntax.NamedArgument, lambda node: f"{quoted(node.name)} => {sql_of(node.value)}")
_printer(syntax.DescriptorArgument, lambda node: f"DESCRIPTOR({', '.join(map(path_of, node.columns))})")


@sql_of.register
def _(node: syntax.TemporalLiteral) -> str:
    root = "TIMESTAMP WITH LOCAL TIME ZONE" if node.root == "TIMESTAMP_LTZ" else node.root
    return f"{root} {literal(node.text)}"


@sql_of.register
def _(node: syntax.TypedLiteral) -> str:
    value = "NULL" if node.value is None else literal(str(node.value))
    return f"CAST({value} AS {node.type.nullable()})"


@sql_of.register
def _(node: syntax.IntervalLiteral) -> str:
    return f"INTERVAL {'-' if node.is_negative else ''}{literal(node.text)} {unit_of(node.qualifier)}"


def unit_of(qualifier: IntervalQualifier) -> str:
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

_printer(syntax.Item, lambda node: f"{sql_of(node.operand)}[{sql_of(node.index)}]")
_printer(syntax.RowValue, lambda node: f"ROW({listed(node.items)})")
_printer(syntax.LambdaFunction, lambda node: f"({', '.join(map(quoted, node.parameters))}) -> {sql_of(node.body)}")


@sql_of.register
def _(node: syntax.FieldAccess) -> str:
    return f"{sql_of(node.operand)}.{'*' if node.name == '*' else quoted(node.name)}"


@sql_of.register
def _(node: syntax.Cast) -> str:
    return f"{'TRY_CAST' if node.is_try else 'CAST'}({sql_of(node.operand)} AS {node.to.nullable()})"


@sql_of.register
def _(node: syntax.Case) -> str:
    operand = "" if node.operand is None else f" {sql_of(node.operand)}"
    branches = "".join(f" WHEN {sql_of(when)} THEN {sql_of(then)}" for when, then in node.branches)
    otherwise = "" if node.otherwise is None else f" ELSE {sql_of(node.otherwise)}"
    return f"CASE{operand}{branches}{otherwise} END"


@sql_of.register
def _(node: syntax.Between) -> str:
    words = f"{_not(node.is_negated)}BETWEEN{' SYMMETRIC' if node.is_symmetric else ''}"
    return f"({sql_of(node.operand)} {words} {sql_of(node.low)} AND {sql_of(node.high)})"


@sql_of.register
def _(node: syntax.In) -> str:
    return f"({sql_of(node.operand)} {_not(node.is_negated)}IN {_among(node.among)})"


@sql_of.register
def _(node: syntax.Like) -> str:
    escape = "" if node.escape is None else f" ESCAPE {sql_of(node.escape)}"
    return f"({sql_of(node.operand)} {_not(node.is_negated)}{node.kind} {sql_of(node.pattern)}{escape})"


@sql_of.register
def _(node: syntax.Quantified) -> str:
    return f"({sql_of(node.operand)} {node.operator} {node.quantifier} {_among(node.among)})"


@sql_of.register
def _(node: syntax.Exists) -> str:
    return f"{'UNIQUE' if node.is_unique else 'EXISTS'} ({sql_of(node.query)})"


@sql_of.register
def _(node: syntax.Subquery) -> str:
    return f"({sql_of(node.query)})"


@sql_of.register
def _(node: syntax.Collection) -> str:
    if isinstance(node.items, tuple):
        return f"{node.root}[{listed(node.items)}]"
    return node.root + f"({sql_of(node.items)})"


@sql_of.register
def _(node: syntax.TableArgument) -> str:
    partition = f" PARTITION BY ({listed(node.partition)})" if node.partition else ""
    order = f" ORDER BY ({ordered(node.order)})" if node.order else ""
    return f"TABLE ({sql_of(node.query)}){partition}{order}"


def _not(is_negated: bool) -> str:
    return "NOT " if is_negated else ""


def _among(among: tuple[Expression, ...] | syntax.Query) -> str:
    return f"({listed(among)})" if isinstance(among, tuple) else f"({sql_of(among)})"


# --- calls -----------------------------------------------------------------------------------------------------------


@sql_of.register
def _(node: Call) -> str:
    name, operands = node.name, node.operands
    if len(node.path) > 1:
        return f"{path_of(node.path)}({_plain(node)}){_after(node, bool(node.order))}"
    if name in _PREFIXES and len(operands) == 1:
        return f"({_PREFIXES[name]} {sql_of(operands[0])})"
    if name in _BINARY or name.startswith("MULTISET "):
        return f"({f' {name} '.join(map(sql_of, operands))})"
    if name.startswith("IS ") and len(operands) == 1:
        return f"({sql_of(operands[0])} {name})"
    if name in ("NEXT VALUE", "CURRENT VALUE"):
        return f"{name} FOR {sql_of(operands[0])}"
    if name == "MINUS_DATE":
        one, other, unit = operands
        assert isinstance(unit, syntax.IntervalLiteral)
        return f"({sql_of(one)} - {sql_of(other)}) {unit_of(unit.qualifier)}"
    if name == "INTERVAL":
        unit = operands[1]
        assert isinstance(unit, syntax.IntervalLiteral)
        return f"INTERVAL {'-' * unit.is_negative}({sql_of(operands[0])}) {unit_of(unit.qualifier)}"
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
        return f"{sql_of(operands[0])} FROM {sql_of(operands[1])}"
    if name == "POSITION" and node.path == ("POSITION",):
        beginning = f" FROM {sql_of(operands[2])}" if len(operands) > 2 else ""
        return f"{sql_of(operands[0])} IN {sql_of(operands[1])}{beginning}"
    if name == "TRIM" and node.options:
        characters = f"{sql_of(operands[1])} " if len(operands) > 1 else ""
        return f"{node.options[0]} {characters}FROM {sql_of(operands[0])}"
    if name in ("FLOOR", "CEIL") and len(operands) == 2 and isinstance(operands[1], syntax.Unit):
        return f"{sql_of(operands[0])} TO {sql_of(operands[1])}"
    if name in ("JSON_OBJECT", "JSON_OBJECTAGG"):
        pairs = zip(operands[::2], operands[1::2], strict=True)
        return spaced(", ".join(f"KEY {sql_of(key)} VALUE {sql_of(value)}" for key, value in pairs), *node.options)
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
        f"DEFAULT {sql_of(next(defaults))} {option.removeprefix('DEFAULT ')}"
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
    condition = "" if node.condition is None else f"FILTER (WHERE {sql_of(node.condition)})"
    found = spaced(nulls, distinct, group, condition)
    return found and f" {found}"


# --- order and windows -----------------------------------------------------------------------------------------------


def ordered(items: Iterable[OrderItem]) -> str:
    """Print the items of ORDER BY."""
    return ", ".join(
        spaced(
            sql_of(item.expression),
            "DESC" if item.is_descending else "",
            "" if item.nulls is None else f"NULLS {item.nulls}",
        )
        for item in items
    )


@sql_of.register
def _(node: syntax.Over) -> str:
    window = quoted(node.window) if isinstance(node.window, str) else f"({window_of(node.window)})"
    return f"{sql_of(node.call)} OVER {window}"


def window_of(window: WindowSpecification) -> str:
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
    return f"{'UNBOUNDED' if bound.distance is None else sql_of(bound.distance)} {bound.direction}"
