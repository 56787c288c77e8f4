"""K1: random programs give what a plain interpreter gives, in every setting; see `random_programs`."""

from __future__ import annotations

import os
import secrets

import pytest
from tests.datastream.random_programs.comparing import Search, check
from tests.datastream.random_programs.programs import drawn_program
from tests.effort import tries

#: another one in each run; `PENSTOCK_RANDOM_SEED` replays one
FRESH = int(os.environ.get("PENSTOCK_RANDOM_SEED") or secrets.randbelow(2**40))
PARTS = 10


@pytest.mark.parametrize("part", [*range(6), *(pytest.param(n, marks=pytest.mark.slow) for n in range(6, PARTS))])
def test_fresh_programs(part: int) -> None:
    search = Search()
    count = tries(200) // PARTS
    begin = FRESH + part * count
    found = [str(one) for seed in range(begin, begin + count) if (one := check(seed, search)) is not None]
    assert not found, "\n".join([f"PENSTOCK_RANDOM_SEED={FRESH} replays this run", *found])


def test_seed_gives_the_same_program_again() -> None:
    assert [drawn_program(seed) for seed in range(20)] == [drawn_program(seed) for seed in range(20)]
