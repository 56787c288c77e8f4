"""Functions of time attributes: processing time and watermarks."""

from __future__ import annotations

from typing import Final

from penstock.base.errors import UnsupportedError
from penstock.table.data.logical_types import DataType, LocalZonedTimestampType, TimestampType
from penstock.table.data.values import Datum, Kernel, to_scalar
from penstock.table.functions.definition import Call, Operands, ScalarFunction, scalar
from penstock.table.functions.signatures import POINT_IN_TIME, takes


def _now(call: Call) -> Kernel:
    clock = call.session.now

    def kernel(rows: int) -> Datum:
        return to_scalar(clock(), call.result)

    return kernel


def _watermark_type(call: Operands) -> DataType:
    is_local = isinstance(call.types[0], LocalZonedTimestampType)
    return LocalZonedTimestampType(3) if is_local else TimestampType(3)


def _planned(call: Call) -> Kernel:
    raise UnsupportedError("this function has a meaning for the planner alone, and not where it stands here")


def _watermark(call: Call) -> Kernel:
    watermark = call.session.watermark

    def kernel(column: Datum) -> Datum:
        milliseconds = watermark()
        return to_scalar(None if milliseconds is None else milliseconds * _MILLISECOND_NS, call.result)

    return kernel


_MILLISECOND_NS: Final = 1_000_000


FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "PROCTIME",
        takes(),
        lambda call: LocalZonedTimestampType(3, False),
        _now,
        "Returns the processing time as a time attribute.",
        section="time",
        usage="PROCTIME()",
        is_dynamic=True,
        takes_rows=True,
    ),
    scalar(
        "CURRENT_WATERMARK",
        takes(POINT_IN_TIME),
        _watermark_type,
        _watermark,
        "Returns the operator's current watermark, or NULL before the first one.",
        section="time",
        usage="CURRENT_WATERMARK(rowtime)",
        python_name="currentWatermark",
        is_dynamic=True,
    ),
    scalar(
        "SOURCE_WATERMARK",
        takes(),
        lambda call: TimestampType(3),
        _planned,
        "Stands for the watermarks that the source emits; only allowed in WATERMARK FOR.",
        section="time",
        usage="SOURCE_WATERMARK()",
        python_name="sourceWatermark",
        is_dynamic=True,
    ),
)
