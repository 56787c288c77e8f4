"""A checkpoint that fails as its metadata is written loses no output, whatever the store has made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.effort import tries
from tests.simulation.doubtful import KINDS, PLANTED, run_doubtful
from tests.simulation.fresh_seeds import commit_number

pytestmark = pytest.mark.slow

#: From 0 on, a planted bug is found in one of these.
SEEDS_MAX = 60
A_TEST = tries(40)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_when_a_write_has_no_certain_end(kind: str) -> None:
    """G8, G9, G11: the job revokes the checkpoint before it begins again, so no job master ever begins from it."""
    happened = 0
    for seed in range(first := commit_number() * 100, first + A_TEST):
        history, has_happened = run_doubtful(seed, kind)
        assert not history.violations, (seed, history.violations)
        happened += has_happened
    assert happened > A_TEST // 4


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.__name__)
def test_planted_bug_is_found(planted: Callable[[], Any]) -> None:
    for seed in range(SEEDS_MAX):
        with planted():
            history, _ = run_doubtful(seed, PLANTED[planted])
        if history.violations:
            assert not run_doubtful(seed, PLANTED[planted])[0].violations
            return
    pytest.fail(f"{planted.__name__} went unnoticed in {SEEDS_MAX} histories")
