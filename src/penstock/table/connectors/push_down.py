"""Push-downs that the planner requests from table scans. Each returns None if the table lacks the ability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.table.connectors.abilities import (
    FilterPushDown,
    LimitPushDown,
    NestedPushDown,
    PartitionPushDown,
    Path,
    ProjectionPushDown,
    TableScan,
    WatermarkPushDown,
    leaf_type,
)
from penstock.table.connectors.tables import TableReader
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import LENGTH_MAX, RowType, VarCharType
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.functions.casts import cast_kernel
from penstock.table.functions.definition import Session
from penstock.table.plan.changes import INSERTS
from penstock.table.plan.logical import Scan
from penstock.table.plan.row_schema import PlanColumn, RowSchema
from penstock.table.plan.text import expression_text
from penstock.table.typed.nodes import Field, Typed
from penstock.table.typed.user_call import UserCall


class PushedFilter(NamedTuple):
    """A scan that leaves out rows, and the conditions that remain to be evaluated."""

    scan: Scan
    remaining: tuple[Typed, ...]


class PushDown:
    """Pushes operations into table scans. `scan` returns the scan of a node; without it nothing is pushed down."""

    def __init__(self, scan: Callable[[Scan], TableScan] | None = None) -> None:
        self._scan = scan

    def narrowed(self, node: Scan, columns: Sequence[int]) -> Scan | None:
        """Return the scan with only these columns, in this order."""
        table_scan = self._found(node)
        if not isinstance(table_scan, ProjectionPushDown):
            return None
        schema = RowSchema(tuple(node.schema[column] for column in columns))
        return _with_columns(
            node,
            schema,
            {column: position for position, column in enumerate(columns)},
            table_scan.with_columns(columns),
        )

    def leaves(self, node: Scan, paths: Sequence[Path]) -> Scan | None:
        """Return the scan with one column per path. Key columns and METADATA columns are paths of their own."""
        table_scan = self._found(node)
        if not isinstance(table_scan, NestedPushDown):
            return None
        source = table_scan.with_leaves(paths)
        columns = tuple(leaf(node.schema, path) for path in paths)
        positions = {path[0]: position for position, path in enumerate(paths) if len(path) == 1}
        return _with_columns(node, RowSchema(columns), positions, source)

    def limited(self, node: Scan, count: int) -> Scan | None:
        """Return the scan limited to `count` rows."""
        table_scan = self._found(node)
        if not isinstance(table_scan, LimitPushDown) or table_scan.reader().changes != INSERTS:
            return None
        return replace(node, source=table_scan.with_limit(count), pushed=(*node.pushed, f"limit=[{count}]"))

    def timed(self, node: Scan, strategy: WatermarkStrategy) -> TableReader | None:
        """Return the reader that generates watermarks at the source."""
        table_scan = self._found(node)
        if not isinstance(table_scan, WatermarkPushDown):
            return None
        return table_scan.with_watermarks(strategy).reader()

    def filtered(self, node: Scan, conditions: Sequence[Typed], session: Session) -> PushedFilter | None:
        """Return the scan without rows that fail the conditions. Nothing is pushed into the scan of a changelog."""
        table_scan = self._found(node)
        if not isinstance(table_scan, FilterPushDown | PartitionPushDown) or table_scan.reader().changes != INSERTS:
            return None
        scan: TableScan = table_scan
        remaining, used = tuple(conditions), ()
        if isinstance(scan, FilterPushDown):
            scan, remaining, used = scan.with_conditions(remaining)
        taken = tuple(_text(condition, node) for condition in conditions if condition not in remaining)
        filters = tuple(
            _text(condition, node) for condition in conditions if condition not in remaining or condition in used
        )
        pushed = (f"filter=[{' AND '.join(filters)}]",) if filters else ()
        if isinstance(scan, PartitionPushDown):
            chosen = _chosen_partitions(node, scan, remaining, session)
            if chosen is not None:
                scan, description = chosen
                pushed = (*pushed, f"partitions=[{description}]")
        if not pushed:
            return None
        filtered = replace(node, source=scan, taken=(*node.taken, *taken), pushed=(*node.pushed, *pushed))
        return PushedFilter(filtered, remaining)

    def _found(self, node: Scan) -> TableScan | None:
        return None if self._scan is None else self._scan(node)


#: for tables that are always read whole
NO_PUSH_DOWN = PushDown()


def _with_columns(node: Scan, schema: RowSchema, positions: dict[int, int], source: TableScan) -> Scan:
    """Return a scan with other columns. `positions`: the new indexes of the columns that remain."""
    return replace(
        node,
        schema=schema,
        key=tuple(positions[column] for column in node.key),
        metadata=tuple((positions[column], key) for column, key in node.metadata if column in positions),
        source=source,
    )


def leaf(schema: RowSchema, path: Path) -> PlanColumn:
    """Return the column at a path."""
    if len(path) == 1:
        return schema[path[0]]
    names = [schema[path[0]].name]
    kind = schema[path[0]].type
    for index in path[1:]:
        assert isinstance(kind, RowType)
        names.append(kind.field_names()[index])
        kind = kind.field_types()[index]
    return PlanColumn(".".join(names), leaf_type(schema[path[0]].type, path[1:]))


def _text(condition: Typed, node: Scan) -> str:
    return expression_text(condition, node.schema.names)


def _chosen_partitions(
    node: Scan, scan: PartitionPushDown, conditions: Sequence[Typed], session: Session
) -> tuple[TableScan, str] | None:
    """Return a scan of the partitions that may satisfy the conditions, and these as text; None if none is excluded."""
    keys = {index: column for index, column in enumerate(node.schema) if column.name in node.partition_keys}
    key_conditions = [condition for condition in conditions if _is_over(condition, set(keys))]
    known = scan.partitions() if key_conditions else None
    if not known:
        return None
    arrays = [pa.nulls(len(known)) for _ in node.schema]
    unread = np.zeros(len(known), np.bool_)
    for key_index, column in keys.items():
        texts = pa.array([partition[column.name] for partition in known], pa.string())
        arrays[key_index] = cast_kernel(VarCharType(LENGTH_MAX), column.type, session, True)(texts)
        unread |= pc.and_(texts.is_valid(), arrays[key_index].is_null()).to_numpy(zero_copy_only=False)
    try:
        answers = Evaluator(key_conditions, session)(Columns(arrays, len(known)))
    except TableRuntimeError:
        return None
    mask = np.ones(len(known), np.bool_)
    for answer in answers:
        mask &= pc.fill_null(answer, False).to_numpy(zero_copy_only=False)
    # The connector may accept a value that the cast cannot read.
    chosen = [partition for partition, is_wanted in zip(known, (mask | unread).tolist(), strict=True) if is_wanted]
    if len(chosen) == len(known):
        return None
    description = ", ".join(
        "{" + ", ".join(f"{key}={value}" for key, value in partition.items()) + "}" for partition in chosen
    )
    return scan.with_partitions(chosen), description


def _is_over(condition: Typed, indices: set[int]) -> bool:
    """Return whether a condition reads only columns at these indexes and calls no user-defined function."""
    parts = list(condition.walk())
    read = {part.index for part in parts if isinstance(part, Field)}
    return bool(read) and read <= indices and not any(isinstance(part, UserCall) for part in parts)
