"""The kind of a metric by its name, for filters and for reporters that distinguish kinds."""

from __future__ import annotations

from typing import Final

from penstock.operations.metrics.scopes import Scoped, Summary, Value

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
METER: Final = "meter"

_COUNTERS: Final = {
    *("numRecordsIn", "numRecordsOut", "numBytesIn", "numBytesOut", "numBuffersOut"),
    *("numLateRecordsDropped", "numRecordsSend", "numRecordsSendErrors", "numRecordsInErrors"),
    *("numFiredTimers", "numBytesSend", "numRecordsOutErrors"),
    *("numBytesInLocal", "numBytesInRemote", "numBuffersInLocal", "numBuffersInRemote"),
}
_METERS: Final = {
    *("numRecordsInPerSecond", "numRecordsOutPerSecond", "numBytesInPerSecond", "numBytesOutPerSecond"),
    *("numBuffersOutPerSecond", "mailboxMailsPerSecond", "idleTimeMsPerSecond", "numFiredTimersPerSecond"),
    *("numBytesInLocalPerSecond", "numBytesInRemotePerSecond"),
    *("numBuffersInLocalPerSecond", "numBuffersInRemotePerSecond"),
}
#: The prefix of a second listing of some of these in Flink.
_INPUT: Final = "Shuffle.Netty.Input."


def grows_only(name: str) -> bool:
    """Return whether it is one of Penstock's own counters, which never decrease within an attempt."""
    return name.removeprefix(_INPUT) in _COUNTERS


def classify_metric(scoped: Scoped, name: str, value: Value) -> str:
    """Return one of the four kinds, as in Flink; a distribution is a histogram."""
    if isinstance(value, Summary):
        return HISTOGRAM
    name = name.removeprefix(_INPUT)
    if name in _COUNTERS or name in scoped.counters:
        return COUNTER
    return METER if name in _METERS else GAUGE
