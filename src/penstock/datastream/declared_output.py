"""Operators whose output type a program declares."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.common.single_precision import rounding
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.core.operators.base import StreamOperator
from penstock.core.operators.emitting_rows import emitting_rows, emitting_singles


def declared(
    factory: Callable[[], StreamOperator], output_type: TypeInformation | None
) -> Callable[[], StreamOperator]:
    """The factory, whose operators emit what the type declares.

    Where the type declares rows, the tuples, lists and dicts that the operators emit become rows. Where it declares a
    FLOAT, the number is rounded to single precision.
    """
    if isinstance(output_type, RowTypeInfo):
        factory = partial(emitting_rows, factory, output_type)
    if output_type is not None and rounding(output_type) is not None:
        factory = partial(emitting_singles, factory, output_type)
    return factory
