"""The parts of tables that queries read: columns, and rows that meet conditions.

Spark finds these itself for the tables that it reads. For Penstock's sources they are derived from copies of the plans.
The plans themselves stay unchanged: all conditions are evaluated again, and unread columns are NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.base.errors import UnsupportedError
from penstock.table.analyser.calls import Calls
from penstock.table.catalog.null_times import NULL_TIME
from penstock.table.connectors.push_down import PushDown
from penstock.table.plan.inputs import with_inputs
from penstock.table.plan.logical import Filter, Node, Scan, WatermarkAssigner, rejected_rows
from penstock.table.streaming.rewrites.columns import ScanKey, Used, columns_read, scan_key
from penstock.table.streaming.rewrites.filters import with_early_filters
from penstock.table.streaming.rewrites.push_down import asked_of_tables
from penstock.table.typed.nodes import Typed


class Part(NamedTuple):
    """The part of a table that is read. `columns`: their indexes in the whole table."""

    scan: Scan
    columns: tuple[int, ...]


class Reads:
    """See the module docstring. `plans` are planned together, and read each table once."""

    def __init__(self, plans: Sequence[Node], calls: Calls, tables: PushDown) -> None:
        self._calls = calls
        self._tables = tables
        self._columns: dict[ScanKey, Used] = {}
        self._asked: dict[ScanKey, list[Typed]] = {}
        for plan in plans:
            early = with_early_filters(_without_watermarks(plan), calls)
            for key, columns in columns_read(early).items():
                self._columns[key] = self._columns.get(key, frozenset()) | columns
            for key, conditions in asked_of_tables(early).items():
                before = self._asked.get(key)
                self._asked[key] = (
                    conditions if before is None else [condition for condition in before if condition in conditions]
                )

    def part(self, node: Scan) -> Part:
        """Return the part of a table to read; all of it if its connector supports no push-down."""
        key = scan_key(node)
        filtered = self._tables.filtered(node, self._asked.get(key, ()), self._calls.session)
        scan = node if filtered is None else filtered.scan
        columns = tuple(sorted(self._columns.get(key, ())))
        narrowed = self._tables.narrowed(scan, columns) if 0 < len(columns) < len(node.schema) else None
        return Part(scan, tuple(range(len(node.schema)))) if narrowed is None else Part(narrowed, columns)


def without_null_times(plans: Sequence[Node], calls: Calls) -> list[Node]:
    """Add a filter above each table whose options drop rows with a NULL event time.

    Raises:
        UnsupportedError: for a table that routes such rows into another table; only streams can.
    """
    known: dict[int, tuple[Node, Node]] = {}

    def changed(node: Node) -> Node:
        # Keep nodes shared between plans.
        entry = known.get(id(node))
        if entry is None:
            entry = known[id(node)] = (
                node,
                _filtered(with_inputs(node, [changed(child) for child in node.inputs()]), calls),
            )
        return entry[1]

    return [changed(plan) for plan in plans]


def _filtered(node: Node, calls: Calls) -> Node:
    if not isinstance(node, WatermarkAssigner) or not node.drops_null:
        return node
    if node.route is not None:
        rejected, side = rejected_rows(node.route), ".".join(node.route.path)
        assert rejected is not None
        table, column = ".".join(rejected.table.path), node.schema.names[node.column]
        hint = f"/*+ OPTIONS('{NULL_TIME.key()}' = 'fail') */"
        raise UnsupportedError(
            f"option '{NULL_TIME.key()}' = 'route' of table {table} is not supported in batch, where a query writes no "
            "other table. Set it to 'drop' for this query by the hint OPTIONS, and write the other table separately: "
            f"INSERT INTO {side} SELECT * FROM {table} {hint} WHERE {column} IS NULL"
        )
    condition = calls.call("IS NOT NULL", [node.input.schema.field(node.column)])
    return Filter(schema=node.schema, input=node.input, condition=condition)


def _without_watermarks(node: Node) -> Node:
    """Remove watermarks: a batch has all rows, so conditions may be evaluated before them."""
    inputs = [_without_watermarks(child) for child in node.inputs()]
    return inputs[0] if isinstance(node, WatermarkAssigner) else with_inputs(node, inputs)
