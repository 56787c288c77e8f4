"""Prints syntax trees as SQL. The output parses back to the same tree, whatever characters names and strings contain.

Names are printed in backticks, and every operator in parentheses. Each kind of node registers its printer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import singledispatch
from typing import Final

from penstock.base.errors import WrongTypeError
from penstock.sql.data.types import literal, quoted
from penstock.sql.parser import syntax
from penstock.sql.parser import syntax as relations
from penstock.sql.parser.lexer import BARE_FUNCTIONS, CALLABLE, RESERVED, SPECIAL
from penstock.sql.parser.syntax import (
    Call,
    Expression,
    GroupItem,
    Hint,
    IntervalQualifier,
    OrderItem,
    Pattern,
    Query,
    Relation,
    SelectItem,
    WindowSpecification,
)


@singledispatch
def to_sql(node: object) -> str:
    """Print an expression or a query, without parentheses around a query."""
    raise WrongTypeError(f"{type(node).__name__} is no expression and no query")


def listed(expressions: Iterable[Expression]) -> str:
    """Print expressions separated by commas."""
    return ", ".join(map(to_sql, expressions))


def format_path(path: Iterable[str]) -> str:
    """Print a path: quoted names separated by dots."""
    return ".".join(map(quoted, path))


def spaced(*parts: str) -> str:
    """Join the parts that are not empty with spaces."""
    return " ".join(part for part in parts if part)


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


@to_sql.register
def _(query: relations.Values) -> str:
    return "VALUES " + ", ".join(f"({listed(row)})" for row in query.rows)


@to_sql.register
def _(query: relations.TableQuery) -> str:
    return f"TABLE {format_path(query.path)}"


@to_sql.register
def _(query: relations.SetOperation) -> str:
    words = f"{query.operator}{' ALL' if query.is_all else ''}"
    return f" {words} ".join(f"({to_sql(part)})" for part in query.parts)


@to_sql.register
def _(query: relations.With) -> str:
    words = "WITH RECURSIVE" if query.is_recursive else "WITH"
    return f"{words} {', '.join(map(_common_table, query.tables))} {_body(query.query)}"


@to_sql.register
def _(query: relations.Ordered) -> str:
    return spaced(
        _body(query.query),
        f"ORDER BY {ordered(query.order)}" if query.order else "",
        "" if query.offset is None else f"OFFSET {to_sql(query.offset)} ROWS",
        "" if query.fetch is None else f"FETCH NEXT {to_sql(query.fetch)} ROWS ONLY",
    )


def _body(query: Query) -> str:
    """Print a query that is followed by ORDER BY or preceded by WITH."""
    text = to_sql(query)
    return f"({text})" if isinstance(query, relations.Ordered) else text


def _common_table(table: relations.CommonTable) -> str:
    columns = f" ({_names(table.columns)})" if table.columns else ""
    return f"{quoted(table.name)}{columns} AS ({to_sql(table.query)})"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


# --- SELECT ----------------------------------------------------------------------------------------------------------


@to_sql.register
def _(query: relations.Select) -> str:
    windows = ", ".join(f"{quoted(name)} AS ({format_window(window)})" for name, window in query.windows)
    return spaced(
        "SELECT",
        _hints(query.hints),
        "STREAM" if query.is_stream else "",
        "DISTINCT" if query.is_distinct else "",
        ", ".join(map(_item, query.items)),
        "" if query.source is None else f"FROM {_relation(query.source)}",
        "" if query.where is None else f"WHERE {to_sql(query.where)}",
        "" if query.group is None else f"GROUP BY {'DISTINCT ' * query.has_distinct_sets}{_groups(query.group)}",
        "" if query.having is None else f"HAVING {to_sql(query.having)}",
        f"WINDOW {windows}" if windows else "",
        "" if query.qualify is None else f"QUALIFY {to_sql(query.qualify)}",
    )


def _item(item: SelectItem) -> str:
    return to_sql(item.expression) + ("" if item.alias is None else f" AS {quoted(item.alias)}")


def _groups(groups: Iterable[GroupItem]) -> str:
    return ", ".join(map(_group, groups))


def _group(group: GroupItem) -> str:
    if group.kind != "SET":
        return f"{group.kind} ({_groups(group.sets)})"
    return listed(group.expressions) if len(group.expressions) == 1 else f"({listed(group.expressions)})"


def _hints(hints: Iterable[Hint]) -> str:
    text = ", ".join(map(_hint, hints))
    return text and f"/*+ {text} */"


def _hint(hint: Hint) -> str:
    parts = [literal(argument) for argument in hint.arguments]
    parts += [f"{literal(key)} = {literal(value)}" for key, value in hint.options]
    return quoted(hint.name) + (f"({', '.join(parts)})" if parts else "")


# --- FROM ------------------------------------------------------------------------------------------------------------


def _relation(relation: Relation) -> str:
    """Print a relation in FROM."""
    if isinstance(relation, relations.Join):
        return _join(relation)
    return spaced(_unnamed(relation), _alias(relation), _sample(relation))


def _alias(relation: Relation) -> str:
    if relation.alias is None:
        return ""
    columns = f" ({_names(relation.columns)})" if relation.columns else ""
    return f"AS {quoted(relation.alias)}{columns}"


def _sample(relation: Relation) -> str:
    return "" if relation.sample is None else f"TABLESAMPLE {relation.sample}"


def _join(join: relations.Join) -> str:
    condition = "" if join.condition is None else f"ON {to_sql(join.condition)}"
    using = f"USING ({_names(join.using)})" if join.using else ""
    natural = "NATURAL" if join.is_natural else ""
    return spaced(_relation(join.left), natural, join.join_type, "JOIN", _relation(join.right), condition, using)


def _unnamed(relation: Relation) -> str:
    if isinstance(relation, relations.NamedTable):
        as_of = "" if relation.as_of is None else f"FOR SYSTEM_TIME AS OF {to_sql(relation.as_of)}"
        version = "" if relation.version is None else f"VERSION AS OF {literal(relation.version)}"
        return spaced(format_path(relation.path), _hints(relation.hints), as_of, version)
    if isinstance(relation, relations.DerivedTable):
        lateral = "LATERAL" if relation.is_lateral else ""
        return spaced(lateral, f"({to_sql(relation.query)})", _hints(relation.hints))
    if isinstance(relation, relations.FunctionTable):
        return f"{'LATERAL ' if relation.is_lateral else ''}TABLE({to_sql(relation.call)})"
    if isinstance(relation, relations.UnnestedTable):
        ordinality = " WITH ORDINALITY" if relation.with_ordinality else ""
        return f"UNNEST({listed(relation.expressions)}){ordinality}"
    if isinstance(relation, relations.AliasedJoin):
        return f"({_relation(relation.relation)})"
    if isinstance(relation, relations.Pivot):
        return f"{_relation(relation.source)} {relation.text}"
    assert isinstance(relation, relations.MatchRecognize), relation
    return _match_recognize(relation)


# --- MATCH_RECOGNIZE -------------------------------------------------------------------------------------------------


def _match_recognize(match: relations.MatchRecognize) -> str:
    measures = ", ".join(map(_item, match.measures))
    subsets = ", ".join(f"{quoted(name)} = ({_names(names)})" for name, names in match.subsets)
    definitions = ", ".join(f"{quoted(name)} AS {to_sql(condition)}" for name, condition in match.definitions)
    within = ""
    if match.within is not None:
        text, qualifier = match.within
        within = (
            f"WITHIN INTERVAL {'-' * text.startswith('-')}{literal(text.removeprefix('-'))} {format_unit(qualifier)}"
        )
    first, _, last = match.skip.rpartition(" ")
    skip = f"{first} {quoted(last)}" if first in ("TO FIRST", "TO LAST") else match.skip
    clauses = spaced(
        f"PARTITION BY {listed(match.partition)}" if match.partition else "",
        f"ORDER BY {ordered(match.order)}" if match.order else "",
        f"MEASURES {measures}" if measures else "",
        match.rows_per_match,
        f"AFTER MATCH SKIP {skip}",
        f"PATTERN ({_pattern(match.pattern)})",
        within,
        f"SUBSET {subsets}" if subsets else "",
        f"DEFINE {definitions}" if definitions else "",
    )
    return f"{_relation(match.source)} MATCH_RECOGNIZE ({clauses})"


def _pattern(pattern: Pattern) -> str:
    parts = [_part(part) for part in pattern.parts]
    if pattern.kind == "VARIABLE":
        return quoted(pattern.variable)
    if pattern.kind == "CONCAT":
        return " ".join(parts)
    if pattern.kind == "ALTER":
        return " | ".join(parts)
    if pattern.kind == "PERMUTE":
        return f"PERMUTE({', '.join(parts)})"
    if pattern.kind == "EXCLUDE":
        return f"{{- {parts[0]} -}}"
    if pattern.kind == "REPEAT":
        times = f"{{{pattern.least},{'' if pattern.most is None else pattern.most}}}"
        return f"{parts[0]}{times}{'?' if pattern.is_reluctant else ''}"
    return pattern.kind


def _part(pattern: Pattern) -> str:
    """Print a nested pattern."""
    text = _pattern(pattern)
    return f"({text})" if pattern.kind in ("CONCAT", "ALTER", "REPEAT") else text


to_sql.register(Pattern, _pattern)
