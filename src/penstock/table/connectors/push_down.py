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
        found = self._found(node)
        if not isinstance(found, ProjectionPushDown):
            return None
        schema = RowSchema(tuple(node.schema[column] for column in columns))
        return _with_columns(
            node, schema, {column: place for place, column in enumerate(columns)}, found.with_columns(columns)
        )

    def leaves(self, node: Scan, paths: Sequence[Path]) -> Scan | None:
        """Return the scan with one column per path. Key columns and METADATA columns are paths of their own."""
        found = self._found(node)
        if not isinstance(found, NestedPushDown):
            return None
        made = found.with_leaves(paths)
        columns = tuple(leaf(node.schema, path) for path in paths)
        places = {path[0]: place for place, path in enumerate(paths) if len(path) == 1}
        return _with_columns(node, RowSchema(columns), places, made)

    def limited(self, node: Scan, count: int) -> Scan | None:
        """Return the scan limited to `count` rows."""
        found = self._found(node)
        if not isinstance(found, LimitPushDown) or found.reader().changes != INSERTS:
            return None
        return replace(node, source=found.with_limit(count), pushed=(*node.pushed, f"limit=[{count}]"))

    def timed(self, node: Scan, strategy: WatermarkStrategy) -> TableReader | None:
        """Return the reader that generates watermarks at the source."""
        found = self._found(node)
        if not isinstance(found, WatermarkPushDown):
            return None
        return found.with_watermarks(strategy).reader()

    def filtered(self, node: Scan, conditions: Sequence[Typed], session: Session) -> PushedFilter | None:
        """Return the scan without rows that fail the conditions. Nothing is pushed into the scan of a changelog."""
        found = self._found(node)
        if not isinstance(found, FilterPushDown | PartitionPushDown) or found.reader().changes != INSERTS:
            return None
        scan: TableScan = found
        remaining, used = tuple(conditions), ()
        if isinstance(scan, FilterPushDown):
            scan, remaining, used = scan.with_conditions(remaining)
        taken = tuple(_text(one, node) for one in conditions if one not in remaining)
        filters = tuple(_text(one, node) for one in conditions if one not in remaining or one in used)
        pushed = (f"filter=[{' AND '.join(filters)}]",) if filters else ()
        if isinstance(scan, PartitionPushDown):
            chosen = _chosen_partitions(node, scan, remaining, session)
            if chosen is not None:
                scan, shown = chosen
                pushed = (*pushed, f"partitions=[{shown}]")
        if not pushed:
            return None
        made = replace(node, source=scan, taken=(*node.taken, *taken), pushed=(*node.pushed, *pushed))
        return PushedFilter(made, remaining)

    def _found(self, node: Scan) -> TableScan | None:
        return None if self._scan is None else self._scan(node)


#: for tables that are always read whole
NO_PUSH_DOWN = PushDown()


def _with_columns(node: Scan, schema: RowSchema, places: dict[int, int], source: TableScan) -> Scan:
    """Return a scan with other columns. `places`: the new indexes of the columns that remain."""
    return replace(
        node,
        schema=schema,
        key=tuple(places[column] for column in node.key),
        metadata=tuple((places[column], key) for column, key in node.metadata if column in places),
        source=source,
    )


def leaf(schema: RowSchema, path: Path) -> PlanColumn:
    """Return the column at a path."""
    if len(path) == 1:
        return schema[path[0]]
    names = [schema[path[0]].name]
    kind = schema[path[0]].type
    for place in path[1:]:
        assert isinstance(kind, RowType)
        names.append(kind.field_names()[place])
        kind = kind.field_types()[place]
    return PlanColumn(".".join(names), leaf_type(schema[path[0]].type, path[1:]))


def _text(condition: Typed, node: Scan) -> str:
    return expression_text(condition, node.schema.names)


def _chosen_partitions(
    node: Scan, scan: PartitionPushDown, conditions: Sequence[Typed], session: Session
) -> tuple[TableScan, str] | None:
    """Return a scan of the partitions that may satisfy the conditions, and these as text; None if none is excluded."""
    keys = {place: column for place, column in enumerate(node.schema) if column.name in node.partition_keys}
    asked = [one for one in conditions if _is_over(one, set(keys))]
    known = scan.partitions() if asked else None
    if not known:
        return None
    arrays = [pa.nulls(len(known)) for _ in node.schema]
    unread = np.zeros(len(known), np.bool_)
    for place, column in keys.items():
        texts = pa.array([one[column.name] for one in known], pa.string())
        arrays[place] = cast_kernel(VarCharType(LENGTH_MAX), column.type, session, True)(texts)
        unread |= pc.and_(texts.is_valid(), arrays[place].is_null()).to_numpy(zero_copy_only=False)
    try:
        answers = Evaluator(asked, session)(Columns(arrays, len(known)))
    except TableRuntimeError:
        return None
    wanted = np.ones(len(known), np.bool_)
    for answer in answers:
        wanted &= pc.fill_null(answer, False).to_numpy(zero_copy_only=False)
    # The connector may accept a value that the cast cannot read.
    chosen = [one for one, is_wanted in zip(known, (wanted | unread).tolist(), strict=True) if is_wanted]
    if len(chosen) == len(known):
        return None
    shown = ", ".join("{" + ", ".join(f"{key}={value}" for key, value in one.items()) + "}" for one in chosen)
    return scan.with_partitions(chosen), shown


def _is_over(condition: Typed, places: set[int]) -> bool:
    """Return whether a condition reads only columns at these indexes and calls no user-defined function."""
    parts = list(condition.walk())
    read = {one.index for one in parts if isinstance(one, Field)}
    return bool(read) and read <= places and not any(isinstance(one, UserCall) for one in parts)
