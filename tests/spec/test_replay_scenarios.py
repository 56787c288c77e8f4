"""Jobs of the simulator with real processes on Spark."""

from __future__ import annotations

import pytest
from tests.spec.replay_scenarios import replay


@pytest.mark.spark
@pytest.mark.parametrize(("seed", "is_killed"), [(13, False), (12, True)])
def test_a_scenario_of_the_simulator_commits_the_same_on_spark(seed: int, is_killed: bool) -> None:
    """G5, G9: the simulator's reference answer is what real workers commit, also when one of them is killed."""
    kills = -1
    while kills < is_killed:  # on a busy machine the job may come to its end before the kill
        result = replay(seed, is_killed)
        assert result.difference is None, str(result)
        kills = result.kills
