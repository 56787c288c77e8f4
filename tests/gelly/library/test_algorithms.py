"""A5: every algorithm gives what networkx or a naive computation gives: on real graphs, and on a sample of random ones.

`python -m tests.gelly.random --graphs 200` is the whole of it.
"""

from __future__ import annotations

import pytest
from tests.effort import tries
from tests.gelly.graphs import env_of
from tests.gelly.library.cases import CASES, cases_of, check_case, run
from tests.gelly.library.graphs import Given, random_graph, random_graphs, real_graphs

from penstock.gelly import asm, library

REAL = {given.name: given for given in real_graphs()}
#: Those of the suite.
SOME = ["florentine families", "davis southern women", "florentine families, directed", "karate club, directed"]
#: Those on which loops run, too.
WITH_LOOPS = ["florentine families", "florentine families, directed"]
#: Random graphs in the suite, from this seed on.
SAMPLE = tries(6)
FIRST_SEED = 300
PLACES = [(1, "BATCH"), (2, "STREAMING"), (4, "BATCH")]


@pytest.mark.parametrize("name", SOME)
def test_every_algorithm_is_right_on_a_real_graph(name: str) -> None:
    for case in cases_of(REAL[name], has_loop=False):
        check_case(case, REAL[name], env_of(2))


@pytest.mark.parametrize("name", WITH_LOOPS)
@pytest.mark.parametrize("parallelism", [1, 4])
def test_every_loop_is_right_on_a_real_graph(name: str, parallelism: int) -> None:
    for case in cases_of(REAL[name], has_loop=True):
        check_case(case, REAL[name], env_of(parallelism))


@pytest.mark.parametrize("given", [*random_graphs(SAMPLE, FIRST_SEED)], ids=lambda given: given.name)
def test_every_algorithm_is_right_on_a_random_graph(given: Given) -> None:
    """Each case at one of the parallelisms and in one of the modes, in turn."""
    for place, case in enumerate(cases_of(given, has_loop=False)):
        parallelism, mode = PLACES[place % len(PLACES)]
        check_case(case, given, env_of(parallelism, mode))


@pytest.mark.parametrize(("seed", "other_seed"), [(306, 302), (301, 313)])
def test_every_check_refuses_the_answer_for_another_graph(seed: int, other_seed: int) -> None:
    given, other = random_graph(seed), random_graph(other_seed)
    for case in cases_of(given, has_loop=False):
        found = run(case, given, env_of(1))
        with pytest.raises((AssertionError, KeyError, StopIteration)):
            case.check(found, other)


def test_every_algorithm_has_a_case() -> None:
    names = {case.name.partition(",")[0] for case in CASES}
    modules = (library, library.undirected, library.directed, asm)
    public = {name for module in modules for name in module.__all__ if name[0].isupper()}
    assert (
        public
        - names
        - {"Degrees", "PageRankResult", "TranslateGraphIds", "TranslateVertexValues", "TranslateEdgeValues"}
        == set()
    )
