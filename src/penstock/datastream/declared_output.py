"""Operators whose output type a program declares."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.core.operators.base import StreamOperator
from penstock.core.operators.emitting_rows import emitting_rows


def declared(
    factory: Callable[[], StreamOperator], output_type: TypeInformation | None
) -> Callable[[], StreamOperator]:
    """The factory; where rows are declared, tuples, lists and dicts that its operators emit become rows."""
    return partial(emitting_rows, factory, output_type) if isinstance(output_type, RowTypeInfo) else factory
