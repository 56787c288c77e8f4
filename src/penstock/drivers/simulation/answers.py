"""Checks of the sinks' output against the expected output: exact, in order, or at least."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from penstock.drivers.simulation.topology import Stage

SHOWN_MAX = 6


def check_exact(sink: str, expected: Counter[Any], records: Iterable[Any]) -> str | None:
    """Check that the sink has exactly the expected records, each as often as expected."""
    actual = Counter(records)
    if actual == expected:
        return None
    lost, more = expected - actual, actual - expected
    return (
        f"output: {sink} has {actual.total()} records instead of {expected.total()}; {lost.total()} lost: "
        f"{_some(lost)}; {more.total()} too many: {_some(more)}"
    )


def check_no_more(sink: str, expected: Counter[Any], records: Iterable[Any]) -> str | None:
    """Check that the sink has no unexpected record, and none too often."""
    more = Counter(records) - expected
    return f"output: {sink} has {more.total()} records too many: {_some(more)}" if more else None


def check_superset(
    sink: str, expected: Counter[Any], records: Iterable[Any], has_early_rules: bool = False
) -> str | None:
    """Check that nothing is lost. Totals may count records more than once, so totals above the expected ones are
    accepted.

    `has_early_rules`: whether records may have met rules read after the barrier of the savepoint that defines the
    input. Then their numbers mean nothing, nor do the keys and copies derived from them.
    """
    if has_early_rules:
        expected = Counter(set(map(_origin_of_record, expected)))
        records = map(_origin_of_record, records)
    actual = Counter(records)
    lost = expected - actual
    totals: dict[Any, list[Any]] = defaultdict(list)
    for record in actual:
        totals[_group(record)].append(record)
    lost = Counter({r: n for r, n in lost.items() if not any(_covers(a, r) for a in totals[_group(r)])})
    return f"lost: {sink} lacks {lost.total()} of {expected.total()} records: {_some(lost)}" if lost else None


def check_order(sink: str, stage: Stage, records: Iterable[Any]) -> str | None:
    """Check that records of one split and key, or running counts of a key, arrive in order."""
    if stage.order is None:
        return None
    last: dict[Any, int] = {}
    for key, origin, number in records:
        if origin[0] == "tally":
            continue
        group, rank = (key, number) if stage.order == "count" else ((key, origin[:2]), origin[2])
        if last.get(group, -1) >= rank:
            return f"order: {sink} has {group} {rank} after {last[group]}"
        last[group] = rank
    return None


def _origin_of_record(record: Any) -> Any:
    key, origin, number = record
    return (0, origin, 0) if isinstance(origin, tuple) and isinstance(origin[0], int) else (key, origin, number)


def _group(record: Any) -> Any:
    key, origin, _ = record
    return key, origin[0] if isinstance(origin, tuple) else origin


def _covers(actual: Any, expected: Any) -> bool:
    """Return whether a total counts at least as much as the expected one."""
    origin, expected_origin = actual[1], expected[1]
    if (
        not isinstance(expected_origin, tuple)
        or expected_origin[0] not in ("window", "bucket")
        or actual[2] < expected[2]
    ):
        return False
    if expected_origin[0] == "bucket":
        return bool(origin[1] == expected_origin[1])
    # A session that counts records twice may have merged two expected ones.
    return bool(origin[1] <= expected_origin[1] and origin[2] >= expected_origin[2] and origin[3] >= expected_origin[3])


def _some(records: Counter[Any]) -> str:
    return ", ".join(repr(r) for r in sorted(records, key=repr)[:SHOWN_MAX]) or "none"
