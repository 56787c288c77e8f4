"""Some algorithms on Spark: streams together in one job; a loop and an analytic take one each.

`python -m tests.gelly.random --target spark --graphs 5` does all of them.
"""

from __future__ import annotations

import pytest
from tests.gelly.library.cases import cases_of, check_case, check_together
from tests.gelly.library.graphs import real_graphs
from tests.gelly.random import environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]

GIVEN = {given.name: given for given in real_graphs()}


TOGETHER = ("TriangleListing, sorted", "LocalClusteringCoefficient", "JaccardIndex, limits", "Summarization")
ALONE = ("TriadicCensus", "LabelPropagation, 1")


@pytest.mark.parametrize("name", ["florentine families", "karate club, directed"])
def test_algorithms_are_right_on_spark(name: str) -> None:
    """Against networkx, or a naive computation."""
    given = GIVEN[name]
    cases = {case.name: case for case in cases_of(given)}
    check_together([cases[one] for one in TOGETHER if one in cases], given, environment("spark", 2, "BATCH"))
    for one in ALONE[: 2 if given.is_directed else 1]:
        check_case(cases[one], given, environment("spark", 2, "BATCH"))
