"""K1: a message gives the same rows, or the same error, alone and among others, in every format.

Each run of the tests has a fresh seed, which a failure prints. `python -m tests.formats.random_messages` runs more.
"""

from __future__ import annotations

import itertools
import random
from typing import Final

import pytest
from tests.effort import tries
from tests.formats.random_messages import FORMATS, run_format

RUNS_MAX: Final = 10


@pytest.fixture(scope="module")
def fresh_seed() -> int:
    """Another one in each run of the tests."""
    return random.SystemRandom().randrange(1 << 32)


@pytest.mark.parametrize("name", FORMATS)
def test_message_is_the_same_alone_and_among_others(fresh_seed: int, name: str) -> None:
    bad, seeds = 0, itertools.count(fresh_seed)
    while not bad:  # a run may draw a table of which each message can be read
        seed = next(seeds)
        assert seed < fresh_seed + RUNS_MAX, f"no message from seed {fresh_seed} on is malformed"
        tried, bad, differences = run_format(name, seed, tries(600))
        replay = f"python -m tests.formats.random_messages --formats '{name}' --seed {seed} --messages {tried}"
        assert not differences, f"{replay}: {differences[:3]}"
    assert bad < tried, replay
