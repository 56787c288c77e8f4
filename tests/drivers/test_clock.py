"""Processing time follows the host's clock, and never backwards; time-outs are measured with another one (C2, E6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest import mock

import pytest

from penstock.drivers.event_loop import SystemClock

SECOND = 1_000_000_000


class Host:
    """What its two clocks show (ns)."""

    def __init__(self) -> None:
        self.host, self.steady = 1_000 * SECOND, 5 * SECOND

    def passes(self, seconds: float) -> None:
        self.host += int(seconds * SECOND)
        self.steady += int(seconds * SECOND)


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    with (
        mock.patch("time.time_ns", side_effect=lambda: host.host),
        mock.patch("time.monotonic_ns", side_effect=lambda: host.steady),
    ):
        yield host


def seconds(read: Callable[[], int]) -> float:
    return read() / 1_000


def test_time_passes(host: Host) -> None:
    clock = SystemClock()
    host.passes(7)
    assert (seconds(clock.now_ms), seconds(clock.steady_ms)) == (1_007, 12)


def test_after_a_suspension(host: Host) -> None:
    """C2: windows and timers of processing time are due at once; the steady clock has stood still."""
    clock = SystemClock()
    host.host += 3_600 * SECOND
    assert (seconds(clock.now_ms), seconds(clock.steady_ms)) == (4_600, 5)


def test_a_clock_that_is_set_back(host: Host) -> None:
    """C2: processing time goes on at half speed until the host's clock is where it is; timers do not stand still."""
    clock = SystemClock()
    host.host -= 60 * SECOND
    assert seconds(clock.now_ms) == 1_000
    shown = []
    for _ in range(4):
        host.passes(40)
        shown.append(seconds(clock.now_ms))
    assert shown == [1_020, 1_040, 1_060, 1_100]
    assert shown[-1] == host.host / SECOND
