"""Lineage of SQL: the datasets of tables, and what the columns of an INSERT are computed from.

`name_table` names the dataset of a table by its options. `trace` follows the columns of a query down to the tables:
what an expression uses is a direct input of its column, and what a condition, a join or a grouping uses is an indirect
input of all rows. Steps that are not known here (MATCH_RECOGNIZE, functions of tables, changelogs) make each column
depend on all columns of their input, which names too many rather than too few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from penstock.base.lineage import InputField, LineageDataset, name_database, name_kafka, name_location
from penstock.sql.logical import nodes
from penstock.sql.typed import Field, Typed

#: what a column is computed from
Origins = frozenset[InputField]


@dataclass(frozen=True, slots=True)
class Traced:
    """The origins of the columns of a query, and of its rows."""

    columns: tuple[Origins, ...]
    rows: Origins = frozenset()


def name_table(options: Mapping[str, str], path: Sequence[str]) -> tuple[str, str]:
    """Return the namespace and the name of a table's dataset; a connector without a rule names it by the table's path.

    >>> name_table({"connector": "kafka", "topic": "orders", "properties.bootstrap.servers": "b:9092"}, ())
    ('kafka://b:9092', 'orders')
    >>> name_table({"connector": "jdbc", "url": "jdbc:postgresql://db/shop", "table-name": "orders"}, ())
    ('postgres://db:5432', 'shop.public.orders')
    """
    connector, name = options.get("connector", ""), ".".join(path)
    if connector in ("kafka", "upsert-kafka"):
        topics = options.get("topic") or options.get("topic-pattern") or name
        return name_kafka(options.get("properties.bootstrap.servers", "")), topics
    if connector == "jdbc":
        namespace, database = name_database(options.get("url", ""))
        table = options.get("table-name", path[-1] if path else "")
        return namespace, _name_relation(namespace, database, None, table)
    if connector in ("postgres-cdc", "mysql-cdc"):
        scheme, port = ("postgres", "5432") if connector == "postgres-cdc" else ("mysql", "3306")
        namespace = f"{scheme}://{options.get('hostname', '')}:{options.get('port', port)}"
        table = options.get("table-name", "")
        return namespace, _name_relation(namespace, options.get("database-name", ""), options.get("schema-name"), table)
    location = options.get("path") or options.get("table-path")
    if location:
        return name_location(location)
    if options.get("warehouse"):
        namespace, folder = name_location(options["warehouse"])
        database = options.get("catalog-database", path[1] if len(path) > 1 else "default")
        table = options.get("catalog-table", path[-1] if path else "")
        return namespace, f"{folder.rstrip('/')}/{database}/{table}"
    url = options.get("url") or options.get("hosts", "").split(";")[0] or options.get("metric.endpoint-url")
    if url and "://" in url:
        namespace, path_of_url = name_database(url)
        keys = ("index", "key-prefix", "streams", "collection-name")
        inner = next((options[key] for key in keys if options.get(key)), path_of_url)
        return namespace, inner or name
    return connector or "penstock", name


def _name_relation(namespace: str, database: str, schema: str | None, table: str) -> str:
    if namespace.startswith("postgres"):
        table = table if "." in table else f"{schema or 'public'}.{table}"
    return f"{database}.{table}" if database else table


def describe_table(node: nodes.Scan | nodes.Write) -> LineageDataset:
    """Return the dataset of a table that is read or written."""
    namespace, name = name_table(dict(node.options), node.path)
    fields = tuple((column.name, str(column.type)) for column in node.schema)
    return LineageDataset(namespace, name, fields, catalog_name=".".join(node.path))


def describe_write(write: nodes.Write) -> LineageDataset:
    """Return the dataset of an INSERT, with what its columns are computed from."""
    traced = trace(write.input)
    if len(traced.columns) == len(write.schema):
        positions: Iterable[int] = range(len(write.schema))
    else:
        positions = write.columns
    columns = {
        write.schema[position].name: tuple(sorted(origins, key=repr))
        for position, origins in zip(positions, traced.columns, strict=False)
        if origins
    }
    return replace(describe_table(write), columns=columns, rows=tuple(sorted(traced.rows, key=repr)))


def trace(node: nodes.Node, known: dict[int, Traced] | None = None) -> Traced:
    """Return what the columns and the rows of a query are computed from. `known`: results by the ids of nodes."""
    known = {} if known is None else known
    if id(node) not in known:
        known[id(node)] = _trace(node, partial(trace, known=known))
    return known[id(node)]


def _trace(node: nodes.Node, trace: Callable[[nodes.Node], Traced]) -> Traced:
    match node:
        case nodes.Scan():
            namespace, name = name_table(dict(node.options), node.path)
            return Traced(tuple(frozenset({InputField(namespace, name, column.name)}) for column in node.schema))
        case nodes.Project():
            below = trace(node.input)
            return Traced(tuple(_trace_expression(it, below.columns) for it in node.expressions), below.rows)
        case nodes.Filter():
            below = trace(node.input)
            return Traced(below.columns, below.rows | _indirect([node.condition], below.columns, "FILTER"))
        case nodes.Join() | nodes.TemporalJoin():
            left, right = trace(node.left), trace(node.right)
            both = left.columns + right.columns
            rows = left.rows | right.rows | _indirect([node.condition], both, "JOIN")
            return Traced(_fit(both, node), rows)
        case nodes.LookupJoin():
            return _trace_lookup(node, trace(node.input), trace(node.table))
        case nodes.Aggregate():
            return _trace_aggregate(node, trace(node.input))
        case nodes.SetOperation():
            parts = [trace(part) for part in node.parts]
            columns = tuple(
                frozenset().union(*of_column) for of_column in zip(*(it.columns for it in parts), strict=True)
            )
            return Traced(columns, frozenset().union(*(part.rows for part in parts)))
        case nodes.Sort() | nodes.Rank():
            below = trace(node.input)
            keys = [key.index for key in (node.keys if isinstance(node, nodes.Sort) else node.order)]
            rows = below.rows | _as_indirect((below.columns[key] for key in keys), "SORT")
            return Traced(_fit(below.columns, node), rows)
        case nodes.Over():
            below = trace(node.input)
            windows = _as_indirect((below.columns[key] for key in node.partition), "WINDOW")
            calls = tuple(
                _as_direct((_trace_expression(it, below.columns) for it in call.operands), "AGGREGATION") | windows
                for call in node.calls
            )
            return Traced(_fit(below.columns + calls, node), below.rows)
        case nodes.WindowTable():
            below = trace(node.input)
            times = _as_direct([below.columns[node.time]], "TRANSFORMATION")
            more = len(node.schema) - len(below.columns)
            return Traced(below.columns + (times,) * more, below.rows)
        case nodes.WatermarkAssigner() | nodes.ChangelogNormalize() | nodes.Distinct():
            below = trace(node.input)
            return Traced(_fit(below.columns, node), below.rows)
        case _:
            inputs = [trace(part) for part in node.inputs()]
            everything = _as_direct((column for part in inputs for column in part.columns), "TRANSFORMATION")
            return Traced((everything,) * len(node.schema), frozenset().union(*(part.rows for part in inputs)))


def _fit(columns: tuple[Origins, ...], node: nodes.Node) -> tuple[Origins, ...]:
    """Return as many columns as a node has: semi-joins have fewer than their inputs, ranks more."""
    return (columns + (frozenset[InputField](),) * len(node.schema))[: len(node.schema)]


def _trace_lookup(node: nodes.LookupJoin, left: Traced, table: Traced) -> Traced:
    right = tuple(_trace_expression(it, table.columns) for it in node.expressions)
    conditions = [it for it in (node.asks, node.condition) if it is not None]
    both = left.columns + right
    rows = left.rows | _indirect([*node.key_values], left.columns, "JOIN") | _indirect(conditions, both, "JOIN")
    rows |= _as_indirect((table.columns[key] for key in node.key), "JOIN")
    if node.where is not None:
        rows |= _indirect([node.where], table.columns, "FILTER")
    return Traced(_fit(both, node), rows)


def _trace_aggregate(node: nodes.Aggregate, below: Traced) -> Traced:
    keys = tuple(below.columns[key] for key in node.keys)
    calls = []
    for call in node.calls:
        operands = [*call.operands, *([] if call.condition is None else [call.condition])]
        calls.append(_as_direct((_trace_expression(it, below.columns) for it in operands), "AGGREGATION"))
    return Traced(_fit(keys + tuple(calls), node), below.rows | _as_indirect(keys, "GROUP_BY"))


def _trace_expression(expression: Typed, columns: Sequence[Origins]) -> Origins:
    if isinstance(expression, Field):
        return columns[expression.index]
    return _as_direct((columns[it.index] for it in _find_fields(expression)), "TRANSFORMATION")


def _find_fields(expression: Typed) -> list[Field]:
    return [it for it in expression.walk() if isinstance(it, Field)]


def _as_direct(origins: Iterable[Origins], kind: str) -> Origins:
    """Return direct origins as those of a computed column; what aggregates is said, and not what follows."""
    return frozenset(
        it if not it.is_direct or it.kind == "AGGREGATION" else replace(it, kind=kind)
        for column in origins
        for it in column
    )


def _as_indirect(origins: Iterable[Origins], kind: str) -> Origins:
    return frozenset(replace(it, is_direct=False, kind=kind) for column in origins for it in column)


def _indirect(expressions: Iterable[Typed], columns: Sequence[Origins], kind: str) -> Origins:
    return _as_indirect((columns[it.index] for expression in expressions for it in _find_fields(expression)), kind)
