"""Functions of the current time, by the session's clock and in its zone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo
from functools import partial
from typing import Final

import pyarrow as pa

from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DateType, LocalZonedTimestampType, TimestampType, TimeType
from penstock.table.data.moments import MILLISECOND_NS
from penstock.table.data.temporal_text import DAY_MS
from penstock.table.data.values import Datum, Kernel
from penstock.table.data.zones import to_local
from penstock.table.functions.definition import Call, ScalarFunction, scalar
from penstock.table.functions.signatures import returns_not_null, takes

_UTC_MS: Final = pa.timestamp("ms", "UTC")


def _local_ms(moment: int, zone: tzinfo) -> int:
    """Return milliseconds since 1970, as local time in the zone."""
    local = to_local(pa.scalar(moment, pa.int64()).cast(_UTC_MS), zone)
    return int(local.cast(pa.int64()).as_py())


def _date(moment: int, zone: tzinfo) -> int:
    return _local_ms(moment, zone) // DAY_MS


def _time(moment: int, zone: tzinfo) -> int:
    return _local_ms(moment, zone) % DAY_MS // 1000 * 1000


def _moment(moment: int, zone: tzinfo) -> int:
    return moment


def _bind(compute: Callable[[int, tzinfo], int], call: Call) -> Kernel:
    session, kind = call.session, arrow_type(call.result)
    stored = pa.int32() if kind.bit_width == 32 else pa.int64()

    def kernel() -> Datum:
        value = compute(session.now() // MILLISECOND_NS, session.zone)
        return pa.array([value], stored).view(kind)[0]

    return kernel


_DATE, _TIME = DateType(), TimeType(0)
_LOCAL, _MOMENT = TimestampType(3), LocalZonedTimestampType(3)

FUNCTIONS: tuple[ScalarFunction, ...] = (
    *(
        scalar(
            name,
            takes(),
            returns_not_null(result),
            partial(_bind, compute),
            summary,
            usage=usage,
            section="time",
            python_name=python_name,
            is_dynamic=name != "CURRENT_ROW_TIMESTAMP",
            is_deterministic=name != "CURRENT_ROW_TIMESTAMP",
        )
        for name, result, compute, usage, python_name, summary in (
            (
                "CURRENT_DATE",
                _DATE,
                _date,
                "CURRENT_DATE",
                "currentDate",
                "Returns the current date in the session time zone.",
            ),
            (
                "CURRENT_TIME",
                _TIME,
                _time,
                "CURRENT_TIME",
                "currentTime",
                "Returns the current time in the session time zone.",
            ),
            ("LOCALTIME", _TIME, _time, "LOCALTIME", "localTime", "Returns the current time in the session time zone."),
            (
                "CURRENT_TIMESTAMP",
                _MOMENT,
                _moment,
                "CURRENT_TIMESTAMP",
                "currentTimestamp",
                "Returns the current timestamp.",
            ),
            ("NOW", _MOMENT, _moment, "NOW()", "", "Returns the current timestamp."),
            (
                "LOCALTIMESTAMP",
                _LOCAL,
                _local_ms,
                "LOCALTIMESTAMP",
                "localTimestamp",
                "Returns the current date and time in the session time zone.",
            ),
            (
                "CURRENT_ROW_TIMESTAMP",
                _MOMENT,
                _moment,
                "CURRENT_ROW_TIMESTAMP()",
                "",
                "Returns the timestamp at which the row is processed.",
            ),
        )
    ),
)
