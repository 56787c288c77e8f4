"""The names of `penstock.gelly.base.streams`, for algorithms on top of graphs."""

from penstock.gelly.base.streams import (
    BOTH,
    FIRST,
    SECOND,
    Wrapped,
    WrappedFlatMap,
    WrappedMap,
    check_stream,
    co_grouped,
    collected,
    count,
    distinct,
    distinct_values,
    lazy,
    of_groups,
    with_key_in,
    without,
)

__all__ = [
    "BOTH",
    "FIRST",
    "SECOND",
    "Wrapped",
    "WrappedFlatMap",
    "WrappedMap",
    "check_stream",
    "co_grouped",
    "collected",
    "count",
    "distinct",
    "distinct_values",
    "lazy",
    "of_groups",
    "with_key_in",
    "without",
]
