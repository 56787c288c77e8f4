"""Prints queries as SQL; see `printing`."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.table.data.logical_types import literal, quoted
from penstock.table.sql import relations
from penstock.table.sql.expression_printing import format_unit, format_window, ordered
from penstock.table.sql.printing import format_path, listed, spaced, to_sql
from penstock.table.sql.relations import GroupItem, Hint, Pattern, Relation, SelectItem
from penstock.table.sql.syntax import Query


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
        return spaced(format_path(relation.path), _hints(relation.hints), as_of)
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
