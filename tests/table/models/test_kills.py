"""ML_PREDICT through kill -9: each row is answered once, and the limit of requests is kept. See `kills`."""

from __future__ import annotations

import pytest
from tests.simulation.fresh_seeds import fresh_seeds
from tests.table.models import kills


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ORDERED", "ALLOW_UNORDERED"])
def test_each_row_is_answered_once(mode: str) -> None:
    seed = fresh_seeds()[0]
    print(f"seed {seed}")
    outcome = kills.run(300, 1, 300, 0.05, seed, mode)
    assert outcome.kills == 1
    assert not outcome.problem(300, 300)
