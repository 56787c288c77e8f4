"""The buffer of an asynchronous sink against a service in virtual time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.simulation.fresh_seeds import commit_number

from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings, Entry, RequestBuffer


def random_settings(choose: random.Random) -> AsyncSinkSettings:
    batch = choose.randint(1, 6)
    return AsyncSinkSettings(
        max_batch_size=batch,
        max_in_flight_requests=choose.randint(1, 4),
        max_buffered_requests=batch + choose.randint(1, 30),
        max_batch_size_in_bytes=choose.randint(10, 60),
        max_record_size_in_bytes=10,
        max_time_in_buffer_ms=choose.choice([1, 20, 1_000]),
        retry_delay_ms=choose.choice([1, 15]),
        retry_delay_max_ms=40,
    )


@dataclass
class Service:
    """Accepts entries in requests that take some time; refuses some, which are sent again."""

    choose: random.Random
    settings: AsyncSinkSettings
    refuses: float
    keeps_order: bool = False
    supersedes: Callable[[Any, Any], bool] | None = None
    buffer: RequestBuffer = field(init=False)
    accepted: list[tuple[Any, int]] = field(default_factory=list)
    in_flight: list[tuple[float, list[Entry]]] = field(default_factory=list)
    now_ms: float = 0

    def __post_init__(self) -> None:
        self.buffer = RequestBuffer(self.settings, self.keeps_order, self.supersedes)

    def send(self, is_flushing: bool) -> None:
        while entries := self.buffer.take(self.now_ms, is_flushing):
            self.check(entries)
            self.in_flight.append((self.now_ms + self.choose.randint(0, 30), entries))

    def check(self, entries: list[Entry]) -> None:
        settings, keys = self.settings, [entry.key for entry in entries if entry.key is not None]
        assert len(entries) <= settings.max_batch_size
        assert len(entries) == 1 or sum(entry.size for entry in entries) <= settings.max_batch_size_in_bytes
        assert len(self.in_flight) < settings.max_in_flight_requests
        others = [entry.key for _, other in self.in_flight for entry in other if entry.key is not None]
        assert not set(keys) & set(others)
        assert self.keeps_order or len(set(keys)) == len(keys)
        assert all(entry.not_before_ms <= self.now_ms for entry in entries)

    def finish(self) -> None:
        """Let the next request end, or the time pass to when something is due."""
        due = self.buffer.next_due_ms(self.now_ms)
        ends = min((end for end, _ in self.in_flight), default=None)
        assert due is not None or ends is not None, "nothing will ever be sent"
        self.now_ms = min(time for time in (due, ends) if time is not None)
        for end, entries in list(self.in_flight):
            if end <= self.now_ms:
                self.in_flight.remove((end, entries))
                refused = [number for number in range(len(entries)) if self.choose.random() < self.refuses]
                again = [entries[number] for number in self.buffer.extend_again(entries, refused)]
                self.accepted += [entry.value for entry in entries if entry not in again]
                self.buffer.complete(entries, again, self.now_ms, self.choose.choice([0, 25]))


def is_third(later: tuple[Any, int], earlier: tuple[Any, int]) -> bool:
    """Whether the later of two values supersedes the other."""
    return later[1] % 3 == 0


def check_superseded(added: list[Any], accepted: list[Any]) -> None:
    """The values of a key come in order, and each that does not was superseded by the next one."""
    assert accepted == [value for value in added if value in set(accepted)]
    for value, following in zip(added, [*added, None][1:], strict=True):
        assert value in accepted or (following is not None and is_third(following, value))


def check_history(seed: int) -> None:
    choose = random.Random(seed)
    refuses, keeps_order = choose.choice([0, 0.3, 0.7]), choose.random() < 0.5
    service = Service(choose, random_settings(choose), refuses, keeps_order, choose.choice([None, is_third]))
    keys: list[Any] = choose.choice([[None], ["a"], ["a", "b", "c", None], list(range(20))])
    added: list[tuple[Any, int]] = []
    for _ in range(choose.randint(1, 60)):
        while not service.buffer.room:
            service.send(False)
            service.finish()
        count = min(choose.choice([1, 1, 5, 30]), service.buffer.room)
        values = [(choose.choice(keys), len(added) + number) for number in range(count)]
        chosen = [key for key, _ in values]
        sizes = [choose.randint(1, 10) for _ in values]
        service.buffer.add(values, sizes, None if set(chosen) == {None} else chosen, service.now_ms)
        added += values
        service.send(False)
        if choose.random() < 0.1:
            service.now_ms += choose.randint(0, 50)
    while not service.buffer.is_empty:
        service.send(True)
        if not service.buffer.is_empty:
            service.finish()
    if service.supersedes is not None:
        for key in set(keys) - {None}:
            of_key = [[value for value in values if value[0] == key] for values in (added, service.accepted)]
            check_superseded(*of_key)
        return
    assert Counter(service.accepted) == Counter(added)
    for key in set(keys) - {None}:
        assert [value for value in service.accepted if value[0] == key] == [v for v in added if v[0] == key]
    if not service.refuses and service.settings.max_in_flight_requests == 1 and keys == [None]:
        assert service.accepted == added


def test_random_histories() -> None:
    """Each entry is accepted once; entries of a key in order; no limit is exceeded."""
    seed = commit_number() * 1_000
    print(f"seeds {seed} to {seed + 399}")
    for each in range(seed, seed + 400):
        check_history(each)


def test_a_key_in_flight_does_not_hold_back_others() -> None:
    settings = AsyncSinkSettings(max_batch_size=2, max_in_flight_requests=3)
    buffer = RequestBuffer(settings, keeps_order=True)
    buffer.add(range(6), [1] * 6, ["a", "a", "a", "a", "a", "b"], 0)
    first = buffer.take(0, True)
    assert [entry.value for entry in first] == [0, 1]
    assert [entry.value for entry in buffer.take(0, True)] == [5]
    assert buffer.take(0, True) == []
    assert len(buffer) == 3
    buffer.add([6], [1], ["a"], 0)
    buffer.complete(first, [first[1]], 0)
    assert buffer.take(0, True) == []
    assert buffer.next_due_ms(0) == settings.retry_delay_ms
    again = buffer.take(settings.retry_delay_ms, True)
    assert [entry.value for entry in again] == [1, 2]
    buffer.complete(again, [], settings.retry_delay_ms)
    assert [entry.value for entry in buffer.take(settings.retry_delay_ms, True)] == [3, 4]


def test_entries_leave_by_count_bytes_and_time() -> None:
    settings = AsyncSinkSettings(max_batch_size=3, max_batch_size_in_bytes=20, max_record_size_in_bytes=20)
    buffer = RequestBuffer(settings)
    for number in range(2):
        buffer.add([number], [1], None, 100)
    assert buffer.take(5_099, False) == []
    assert buffer.next_due_ms(5_099) == 5_100
    assert [entry.value for entry in buffer.take(5_100, False)] == [0, 1]
    buffer.add(range(4), [1] * 4, None, 6_000)
    assert [entry.value for entry in buffer.take(6_000, False)] == [0, 1, 2]
    assert buffer.take(6_000, False) == []
    buffer.add([4], [19], None, 6_000)
    assert [entry.value for entry in buffer.take(6_000, False)] == [3, 4]
    buffer.add([5], [1], None, 6_000)
    assert buffer.take(6_000, False) == []


def test_the_limit_falls_with_refusals_and_rises_again() -> None:
    settings = AsyncSinkSettings(max_batch_size=100, max_in_flight_requests=2)
    buffer = RequestBuffer(settings)
    assert buffer.limit == 200
    for _ in range(100):
        buffer.add(["x"], [1], None, 0)
        entries = buffer.take(1e9, True)
        buffer.complete(entries, [], 1e9)
    assert buffer.limit == 200
    for _ in range(30):
        buffer.add(["x"], [1], None, 0)
        entries = buffer.take(1e9, True)
        buffer.complete(entries, entries, 0)
    assert buffer.limit == int(200 * 0.99**30)
    while entries := buffer.take(1e9, True):
        buffer.complete(entries, [], 1e9)
    assert buffer.limit > int(200 * 0.99**30)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_batch_size": 0}, "max_batch_size is 0; it must be positive"),
        ({"max_batch_size": 10, "max_buffered_requests": 10}, "must exceed max_batch_size, which is 10"),
        ({"max_batch_size_in_bytes": 10}, "must be at least max_record_size_in_bytes"),
    ],
)
def test_limits_that_contradict(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(AsyncSinkSettings(), **change)
