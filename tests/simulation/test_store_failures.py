"""A store that fails at any of its operations; `python -m tests.simulation.store_failures` runs all of them."""

from __future__ import annotations

import pytest
from tests.simulation.store_failures import JOBS, KINDS, run_all

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("job", JOBS)
def test_a_store_may_fail_at_any_operation(job: str) -> None:
    """G11: refused, torn, done with an error, slow, or later than the time-out: no promise is broken."""
    kinds = set()
    for _, mode, kind, index, history in run_all((job,), step=9):
        assert not history.violations, f"{job}, {mode}, {kind} at operation {index}"
        kinds.add(kind)
    assert kinds == set(KINDS)
