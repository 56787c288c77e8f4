"""Restart strategies: failures in, delays out."""

from typing import Any

import pytest

from penstock.base.configuration import Configuration
from penstock.runtime.job.failover import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    make_restart_strategy,
)


def test_none():
    """G8: no restart."""
    assert NoRestart().on_failure(0) is None


def test_fixed_delay():
    """G8: a number of restarts after the same delay each."""
    strategy = FixedDelayRestart(2, 50)
    assert [strategy.on_failure(t) for t in (0, 1, 2)] == [50, 50, None]


def test_failure_rate():
    """G8: restarts as long as the failures within the interval are not too many; old ones are forgotten."""
    strategy = FailureRateRestart(2, 100, 7)
    assert [strategy.on_failure(t) for t in (0, 50, 100, 160, 199)] == [7, 7, 7, 7, None]


def test_exponential_delay():
    """G8: delays grow to a limit, and begin anew after a time without failure."""
    strategy = ExponentialDelayRestart(100, 350, 2.0, 1000, 0.0, 10)
    assert [strategy.on_failure(t) for t in (0, 200, 600)] == [100, 200, 350]
    assert strategy.on_failure(600 + 350 + 999) == 350
    assert strategy.on_failure(1949 + 350 + 1000) == 100


def test_exponential_delay_gives_up():
    """G8: after so many restarts in a row the job fails."""
    strategy = ExponentialDelayRestart(1, 1, 1.0, 1000, 0.0, 2)
    assert [strategy.on_failure(t) for t in (0, 1, 2)] == [1, 1, None]


def test_jitter_stays_within_its_share():
    """G8: jitter moves a delay by at most its share, and not always by the same."""
    delays: Any = {ExponentialDelayRestart(1000, 1000, 1.0, 1, 0.1, 10).on_failure(t) for t in range(500)}
    assert min(delays) >= 900
    assert max(delays) <= 1100
    assert len(delays) > 100


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, NoRestart),
        ({"execution.checkpointing.interval": "1 s"}, ExponentialDelayRestart),
        ({"restart-strategy.type": "none", "execution.checkpointing.interval": "1 s"}, NoRestart),
        ({"restart-strategy.type": "fixed-delay"}, FixedDelayRestart),
        ({"restart-strategy.type": "failure-rate"}, FailureRateRestart),
    ],
)
def test_configured(options, expected):
    """G8: the strategy is the configured one; by default exponential with checkpoints, none without."""
    configuration = Configuration()
    for key, value in options.items():
        configuration.set_string(key, value)
    assert type(make_restart_strategy(configuration)) is expected
