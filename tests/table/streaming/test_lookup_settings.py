"""Options of look-ups: those of a hint go ahead of those of the session."""

from __future__ import annotations

import pytest

from penstock.sql.data.errors import ValidationError
from penstock.sql.stream.lookups.settings import CacheSettings, LookupSettings, lookup_settings

SESSION = {
    "table.exec.async-lookup.output-mode": "ALLOW_UNORDERED",
    "table.exec.async-lookup.buffer-capacity": "7",
    "table.exec.async-lookup.timeout": "2 s",
    "table.optimizer.non-deterministic-update.strategy": "try_resolve",
}


def test_defaults_are_those_of_flink() -> None:
    found = lookup_settings({}, {}, {}, "t")
    assert found == LookupSettings()
    assert (found.is_ordered, found.capacity, found.timeout_ms) == (True, 100, 180_000)


def test_the_session_says_how_answers_are_waited_for() -> None:
    found = lookup_settings(SESSION, {}, {}, "t")
    assert found == LookupSettings(is_ordered=False, capacity=7, timeout_ms=2000, resolves_updates=True)


def test_a_hint_says_it_for_one_join() -> None:
    hint = {
        "table": "t",
        "async": "true",
        "output-mode": "ordered",
        "capacity": "9",
        "timeout": "1 min",
        "retry-predicate": "lookup_miss",
        "retry-strategy": "fixed_delay",
        "fixed-delay": "10 s",
        "max-attempts": "3",
        "shuffle": "true",
    }
    found = lookup_settings(SESSION, {}, hint, "t")
    assert found == LookupSettings(
        is_async=True,
        is_ordered=True,
        capacity=9,
        timeout_ms=60_000,
        miss_retries=3,
        miss_delay_ms=10_000,
        shuffles=True,
        resolves_updates=True,
    )


def test_the_order_of_each_key_is_kept_by_that_of_the_input() -> None:
    session = SESSION | {"table.exec.async-lookup.key-ordered-enabled": "true"}
    assert lookup_settings(session, {}, {}, "t").is_ordered


def test_a_table_says_what_is_held_and_how_often_it_is_asked() -> None:
    table = {
        "lookup.cache": "PARTIAL",
        "lookup.partial-cache.max-rows": "50",
        "lookup.partial-cache.expire-after-write": "1 h",
        "lookup.partial-cache.expire-after-access": "1 min",
        "lookup.partial-cache.cache-missing-key": "false",
        "lookup.max-retries": "4",
    }
    found = lookup_settings({}, table, {}, "t")
    assert found == LookupSettings(cache=CacheSettings(50, 3_600_000, 60_000, False), error_retries=4)


@pytest.mark.parametrize(
    "session",
    [
        {"table.exec.async-lookup.output-mode": "ANY"},
        {"table.exec.async-lookup.buffer-capacity": "few"},
        {"table.exec.async-lookup.timeout": "soon"},
    ],
)
def test_values_that_no_option_has_are_refused(session: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="table t"):
        lookup_settings(session, {}, {}, "t")
