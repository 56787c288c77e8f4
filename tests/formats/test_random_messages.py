"""K1: a message gives the same rows, or the same error, alone and among others, in every format.

Each run of the tests has a fresh seed, which a failure prints. `python -m tests.formats.random_messages` runs more.
"""

from __future__ import annotations

import random

import pytest
from tests.effort import tries
from tests.formats.random_messages import FORMATS, run_format


@pytest.fixture(scope="module")
def fresh_seed() -> int:
    """Another one in each run of the tests."""
    return random.SystemRandom().randrange(1 << 32)


@pytest.mark.parametrize("name", FORMATS)
def test_message_is_the_same_alone_and_among_others(fresh_seed: int, name: str) -> None:
    tried, bad, differences = run_format(name, fresh_seed, tries(600))
    replay = f"python -m tests.formats.random_messages --formats '{name}' --seed {fresh_seed} --messages {tried}"
    assert not differences, f"{replay}: {differences[:3]}"
    assert 0 < bad < tried, replay
