"""A4, I1: random queries over random tables give DuckDB's rows in every setting.

Each run of the tests has a fresh seed. A failure prints it, and the command that replays the query.
`python -m tests.table.differential` runs more of them.
"""

from __future__ import annotations

import random

import pytest
from tests.effort import tries
from tests.table.differential.runner import Plan, run_cases
from tests.table.differential.settings import ALL_BATCHES, NO_BATCHES

#: the fresh queries, in parts that take less than the time limit of a test
PARTS = 20
QUERIES_OF_A_PART = tries(200) // PARTS
FIXED_SEED = 20_261_128
FIXED_QUERIES = 40
QUERIES_IN_SPARK = 4
#: processor time (s) after which a query is left out; one that waits for six times as long is a failure
LIMIT_S = 20
SHRINK_S = 10


@pytest.fixture(scope="module")
def fresh_seed() -> int:
    """Another one in each run of the tests."""
    return random.SystemRandom().randrange(1 << 32)


def check(seed: int, numbers: range, batches: str = NO_BATCHES) -> None:
    """Run queries up to the first one that fails."""
    plan = Plan(seed, batches, LIMIT_S, SHRINK_S)
    for number in numbers:
        summary = run_cases(plan, [number])
        assert not summary.failures, summary.failures[number]


@pytest.mark.parametrize("part", [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, PARTS))])
def test_fresh_queries_give_the_rows_of_duckdb_in_every_setting(fresh_seed: int, part: int) -> None:
    check(fresh_seed, range(part * QUERIES_OF_A_PART, (part + 1) * QUERIES_OF_A_PART))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, FIXED_QUERIES, 20))
def test_the_queries_of_a_fixed_seed_do_so(first: int) -> None:
    check(FIXED_SEED, range(first, first + 20))


@pytest.mark.spark
def test_fresh_queries_give_the_same_rows_in_a_batch(fresh_seed: int) -> None:
    check(fresh_seed, range(QUERIES_IN_SPARK), ALL_BATCHES)
