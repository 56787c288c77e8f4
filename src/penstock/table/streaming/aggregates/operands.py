"""The operands of aggregate calls in the rows of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.table.data.logical_types import DataType
from penstock.table.data.values import to_values
from penstock.table.plan.logical import AggregateCall
from penstock.table.typed.nodes import Constant, Field


def read_operands(
    call: AggregateCall, columns: pa.RecordBatch, types: Sequence[DataType]
) -> list[tuple[Any, ...] | None]:
    """Return a call's operands in each row; None for rows that its FILTER excludes."""
    rows = columns.num_rows
    lists: list[list[Any]] = []
    for operand in call.operands:
        if isinstance(operand, Constant):
            lists.append([operand.value] * rows)
        else:
            assert isinstance(operand, Field)
            lists.append(to_values(columns.column(operand.index), types[operand.index]))
    row_operands: list[Any] = list(zip(*lists, strict=True)) if lists else [()] * rows
    if isinstance(call.condition, Field):
        keeps = columns.column(call.condition.index).to_pylist()
        return [values if keep else None for values, keep in zip(row_operands, keeps, strict=True)]
    return row_operands
