"""What parallelism each vertex gets from the slots at hand (E3)."""

import pytest

from penstock.base.configuration import Configuration
from penstock.base.errors import WrongValueError
from penstock.runtime.graph import JobEdge, JobGraph, JobVertex, OperatorInfo
from penstock.runtime.job.slots import Bounds, ResourceRequirements, compute_requirements


def vertex(index: int, parallelism: int, group: str = "default", limit: int | None = None) -> JobVertex:
    info = OperatorInfo(f"id-{index}", f"v{index}", None, True)
    return JobVertex(
        index, f"v{index}", parallelism, 16, (info,), b"", slot_sharing_group=group, parallelism_limit=limit
    )


def graph(*vertices: JobVertex, edges: tuple[tuple[int, int, str], ...] = ()) -> JobGraph:
    job_edges = tuple(JobEdge(i, s, t, 0, kind, kind == "FORWARD") for i, (s, t, kind) in enumerate(edges))
    return JobGraph("job", vertices, job_edges)


def configured(**settings: str) -> Configuration:
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    return configuration


ADAPTIVE = configured(**{"jobmanager.scheduler": "adaptive"})
REACTIVE = configured(**{"scheduler-mode": "reactive"})


def test_by_default_a_job_needs_the_slots_of_its_parallelism() -> None:
    requirements = compute_requirements(graph(vertex(0, 2), vertex(1, 3)), Configuration())
    assert (requirements.sufficient, requirements.desired) == (3, 3)
    assert requirements.parallelism(2) is None
    assert requirements.parallelism(3) == requirements.parallelism(9) == {0: 2, 1: 3}


def test_the_adaptive_scheduler_takes_what_is_there_up_to_the_parallelism_of_the_program() -> None:
    requirements = compute_requirements(graph(vertex(0, 2), vertex(1, 3)), ADAPTIVE)
    assert (requirements.sufficient, requirements.desired) == (1, 3)
    assert [requirements.parallelism(slots) for slots in (1, 2, 3, 4)] == [
        {0: 1, 1: 1},
        {0: 2, 1: 2},
        {0: 2, 1: 3},
        {0: 2, 1: 3},
    ]


def test_it_does_not_go_below_the_lowest_parallelism_that_is_declared() -> None:
    """What the program runs at less keeps its parallelism."""
    lowest = configured(**{"jobmanager.scheduler": "adaptive", "penstock.adaptive-scheduler.min-parallelism": "2"})
    requirements = compute_requirements(graph(vertex(0, 1), vertex(1, 4)), lowest)
    assert (requirements[0], requirements[1]) == (Bounds(1, 1), Bounds(2, 4))
    assert requirements.parallelism(1) is None


def test_in_reactive_mode_each_vertex_goes_up_to_what_it_can_be() -> None:
    requirements = compute_requirements(graph(vertex(0, 2), vertex(1, 1, limit=1)), REACTIVE)
    assert requirements.desired == 16
    assert requirements.parallelism(5) == {0: 5, 1: 1}


def test_slots_are_shared_out_fairly_among_slot_sharing_groups() -> None:
    """First what each needs, then one by one to the group that has fewest, as long as it wants more."""
    requirements = compute_requirements(graph(vertex(0, 6, "a"), vertex(1, 2, "b"), vertex(2, 6, "c")), ADAPTIVE)
    assert requirements.parallelism(2) is None
    assert requirements.parallelism(4) == {0: 2, 1: 1, 2: 1}
    assert requirements.parallelism(10) == {0: 4, 1: 2, 2: 4}
    assert requirements.parallelism(99) == {0: 6, 1: 2, 2: 6}


def test_vertices_that_a_forward_edge_connects_have_one_parallelism() -> None:
    """B3: also where they are in different groups, or one of them can be no more than 1."""
    forward = ((0, 1, "FORWARD"), (1, 2, "HASH"))
    four = graph(vertex(0, 4, "a"), vertex(1, 4, "b"), vertex(2, 4, "b"), edges=forward)
    two_groups = compute_requirements(four, ADAPTIVE)
    assert two_groups.parallelism(5) == {0: 2, 1: 2, 2: 2}
    limited = compute_requirements(graph(vertex(0, 1), vertex(1, 1, limit=1), vertex(2, 1), edges=forward), REACTIVE)
    assert limited.parallelism(3) == {0: 1, 1: 1, 2: 3}


def test_somebody_asks_for_another_parallelism() -> None:
    requirements = compute_requirements(graph(vertex(0, 2), vertex(1, 2), vertex(2, 2)), Configuration())
    changed = requirements.with_parallelism({1: 4}, keeps_lower=False)
    assert changed.parallelism(4) == {0: 2, 1: 4, 2: 2}
    assert changed.parallelism(3) is None
    assert requirements.parallelism(2) == {0: 2, 1: 2, 2: 2}


def test_for_the_adaptive_scheduler_that_is_an_upper_bound() -> None:
    requirements = compute_requirements(graph(vertex(0, 2), vertex(1, 2)), ADAPTIVE)
    changed = requirements.with_parallelism({1: 4}, keeps_lower=True)
    assert changed.parallelism(3) == {0: 2, 1: 3}


def test_those_connected_by_forward_edges_follow() -> None:
    job = graph(vertex(0, 2), vertex(1, 2), edges=((0, 1, "FORWARD"),))
    requirements = compute_requirements(job, Configuration())
    assert requirements.with_parallelism({0: 3}, keeps_lower=False).parallelism(3) == {0: 3, 1: 3}
    with pytest.raises(WrongValueError, match="'v0' is to have parallelism 3 and 'v1' 4, but forward edges"):
        requirements.with_parallelism({0: 3, 1: 4}, keeps_lower=False)


@pytest.mark.parametrize(("index", "parallelism", "highest"), [(0, 0, 16), (0, 17, 16), (1, 2, 1)])
def test_a_parallelism_that_cannot_be_is_refused(index: int, parallelism: int, highest: int) -> None:
    requirements = compute_requirements(graph(vertex(0, 2), vertex(1, 1, limit=1)), Configuration())
    message = f"'v{index}' can have a parallelism from 1 to {highest}, not {parallelism}"
    with pytest.raises(WrongValueError, match=message):
        requirements.with_parallelism({index: parallelism}, keeps_lower=False)


def test_bounds_that_contradict_each_other_give_way_to_the_upper_one() -> None:
    job = graph(vertex(0, 4), vertex(1, 4), edges=((0, 1, "FORWARD"),))
    requirements = ResourceRequirements(job, {0: Bounds(4, 4), 1: Bounds(1, 2)})
    assert requirements[0] == requirements[1] == Bounds(2, 2)
