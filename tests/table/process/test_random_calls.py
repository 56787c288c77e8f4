"""Process table functions beside a plain runtime, with fresh seeds."""

from __future__ import annotations

from tests.effort import tries
from tests.table.process.random_calls import differences, seeds


def test_the_operator_does_what_a_plain_runtime_does() -> None:
    """Random rows, watermarks, restores and rescaling; `--seed` of `random_calls` repeats a try."""
    for seed in seeds(tries(60)):
        wrong = differences(seed)
        assert not wrong, f"python -m tests.table.process.random_calls --seed {seed}: {wrong}"
