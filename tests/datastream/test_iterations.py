"""Loops over bounded data: bulk and delta iterations, superstep by superstep (A2, I3)."""

from __future__ import annotations

import logging
import random
import threading
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.datastream.environments import collect, local_environment
from tests.spec.batch_programs import Slowly
from tests.spec.iteration_programs import (
    AddUp,
    Below,
    Marked,
    Tell,
    components,
    first,
    k_means,
    page_rank,
    plain_components,
    plain_k_means,
    plain_page_rank,
    plain_shortest_paths,
    shortest_paths,
    sums,
)

from penstock.base.accumulators import (
    DoubleSumAggregator,
    IntCounter,
    LongMaxAggregator,
    LongSumAggregator,
    LongZeroConvergence,
)
from penstock.base.errors import ConfigurationError, JobExecutionError, PenstockError, UserFunctionError
from penstock.base.job import JobStatus
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Encoder, Types
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import MapFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink

MODES = ["BATCH", "STREAMING", "MICRO_BATCH", "AUTOMATIC"]


def env_of(parallelism: int = 1, mode: str = "BATCH", **options: Any) -> StreamExecutionEnvironment:
    return local_environment(parallelism, execution__runtime_mode=mode, **options)


def files_below(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def a_graph(pages: int, seed: int) -> dict[int, list[int]]:
    chance = random.Random(seed)
    return {page: chance.sample(range(pages), chance.randint(1, 5)) for page in range(pages)}


# --- whole algorithms -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 4])
def test_page_rank(parallelism: int) -> None:
    """A2, I3: a bulk iteration whose links do not change."""
    graph = a_graph(40, seed=1)
    ranks = dict(collect(page_rank(env_of(parallelism), graph, 12)))
    assert ranks == pytest.approx(plain_page_rank(graph, 12))
    assert sum(ranks.values()) == pytest.approx(1)


@pytest.mark.parametrize("parallelism", [1, 4])
def test_k_means_ends_when_the_centroids_stand_still(parallelism: int, caplog: pytest.LogCaptureFixture) -> None:
    """I3: the data of a superstep, broadcast; an aggregator over all subtasks, and the criterion that it ends by."""
    chance = random.Random(2)
    points = [(chance.gauss(x, 0.5), chance.gauss(y, 0.5)) for x, y in [(0, 0), (5, 5), (0, 6)] for _ in range(30)]
    begin = points[:1] + points[30:31] + points[31:32]
    with caplog.at_level(logging.INFO, "penstock.iterations"):
        found = {n: at for n, *at in collect(k_means(env_of(parallelism), points, begin, 1e-9, 50))}
    expected = plain_k_means(points, begin, 1e-9, 50)
    assert {n: pytest.approx(at) for n, at in expected.items()} == found
    assert caplog.messages[-1].endswith("supersteps: converged")


vertices = st.integers(1, 12).map(lambda count: list(range(count)))


@st.composite
def graphs(draw: Any) -> Any:
    names = draw(vertices)
    pair = st.tuples(st.sampled_from(names), st.sampled_from(names), st.integers(1, 9))
    return names, draw(st.lists(pair, max_size=20))


@settings(max_examples=15, deadline=None)
@given(graphs(), st.sampled_from([1, 3]))
def test_connected_components(graph: Any, parallelism: int) -> None:
    """I3: a delta iteration; each superstep looks only at what has changed."""
    names, weighted = graph
    edges = [(one, other) for one, other, _ in weighted]
    found = collect(components(env_of(parallelism), names, edges))
    assert sorted(found) == sorted(plain_components(names, edges).items())


@settings(max_examples=15, deadline=None)
@given(graphs(), st.sampled_from([1, 3]))
def test_shortest_paths(graph: Any, parallelism: int) -> None:
    """I3: workset and solution set meet in a keyed function of two inputs."""
    names, edges = graph
    found = collect(shortest_paths(env_of(parallelism), names, edges, 0))
    assert sorted(found) == sorted(plain_shortest_paths(names, edges, 0).items())


@pytest.mark.parametrize("parallelism", [1, 4])
@pytest.mark.parametrize("mode", MODES)
def test_the_result_is_the_same_in_every_execution_mode(mode: str, parallelism: int, tmp_path: Path) -> None:
    """I1, I3: supersteps are batches whatever follows them."""
    edges = [(n, n + 1) for n in range(9) if n != 4]
    env = env_of(parallelism, mode, execution__checkpointing__dir=tmp_path)
    found = collect(components(env, list(range(10)), edges).map(lambda pair: pair).key_by(first).map(tuple))
    assert sorted(found) == [(n, 0 if n < 5 else 5) for n in range(10)]


# --- when a loop ends -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("supersteps", [0, 1, 7])
def test_a_loop_ends_after_the_maximum_of_supersteps(supersteps: int) -> None:
    """I3: none at all gives what it began with."""
    loop = env_of(2).from_collection([1, 2, 3]).iterate(supersteps)
    assert loop.get_max_iterations() == supersteps
    assert sorted(collect(loop.close_with(loop.map(lambda n: n * 2)))) == [n * 2**supersteps for n in (1, 2, 3)]


def test_a_negative_maximum_is_refused() -> None:
    """I3."""
    with pytest.raises(ValueError, match="must be 0 or more, not -1"):
        env_of().from_collection([1]).iterate(-1)


def test_a_loop_ends_when_the_termination_criterion_is_empty() -> None:
    """I3: the superstep in which it is empty counts; 1 -> 2 -> 4 -> 8 -> 16."""
    loop = env_of(2).from_collection([1]).iterate(100)
    doubled = loop.map(lambda n: n * 2)
    assert collect(loop.close_with(doubled, doubled.filter(lambda n: n < 16))) == [16]


def test_a_convergence_criterion_sees_superstep_and_aggregate(tmp_path: Path) -> None:
    """I3: exact over all subtasks and operators, and from 1 on."""
    seen = tmp_path / "seen"
    assert sorted(collect(sums(env_of(3), 10, 3, seen, AddUp()))) == list(range(3, 13))
    assert seen.read_text() == "1:45 2:55 3:65 "


def test_a_convergence_criterion_ends_a_delta_iteration_too() -> None:
    """I3: here after the first superstep, in which nobody counts anything."""
    begin = env_of().from_collection([("a", 1)])
    loop = begin.iterate_delta(begin, 10, first)
    loop.register_aggregation_convergence_criterion("none", LongSumAggregator(), LongZeroConvergence())
    more = loop.workset.map(lambda pair: (pair[0], pair[1] + 1))
    assert collect(loop.close_with(more, more)) == [("a", 2)]


def test_an_empty_workset_at_the_start_gives_the_solution_set() -> None:
    """I3: no superstep runs."""
    env = env_of(2)
    loop = env.from_collection([(1, "a"), (2, "b")]).iterate_delta(env.from_collection([]), 10, first)
    assert sorted(collect(loop.close_with(loop.workset.map(fails), loop.workset))) == [(1, "a"), (2, "b")]


def fails(value: Any) -> Any:
    raise RuntimeError(f"no {value}")


# --- the solution set -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_delta_replaces_records_by_key_and_adds_new_keys(parallelism: int) -> None:
    """I3: what it does not name stays as it is; of what a key begins with several times the last stays."""
    env = env_of(parallelism)
    begin = env.from_collection([("a", 0), ("a", 1), ("b", 1), ("c", 1)])
    loop = begin.iterate_delta(env.from_collection([("b", 20), ("d", 40)]), 10, first)
    found = collect(loop.close_with(loop.workset, loop.workset.filter(lambda pair: False)))
    assert sorted(found) == [("a", 1), ("b", 20), ("c", 1), ("d", 40)]


def test_timestamps_stay_with_the_records_of_a_solution_set() -> None:
    """I3, C2: also beside records that have none."""
    env = env_of(2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda pair, _: pair[1])
    begin = env.from_collection([("a", 5), ("b", 6)]).assign_timestamps_and_watermarks(strategy)
    loop = begin.iterate_delta(env.from_collection([("b", 7)]), 1, first)
    result = loop.close_with(loop.workset, loop.workset)
    assert sorted(collect(result)) == [("a", 5), ("b", 7)]


def test_workset_and_solution_set_are_co_grouped_by_key() -> None:
    """A2, I3: groups of both; keys that only one of them has too."""
    env = env_of(2)
    begin = env.from_collection([("a", 1), ("b", 1)])
    loop = begin.iterate_delta(env.from_collection([("a", 2), ("a", 3), ("c", 4)]), 1, first)
    delta = (
        loop.workset.co_group(loop.solution_set)
        .where(first)
        .equal_to(first)
        .apply(lambda work, held: [((work or held)[0][0], sum(pair[1] for pair in [*work, *held]))])
    )
    assert sorted(collect(loop.close_with(delta, delta))) == [("a", 6), ("b", 1), ("c", 4)]


def test_a_join_without_windows_needs_bounded_streams() -> None:
    """A2: the source is named."""
    env = env_of(mode="STREAMING")
    ends = env.from_collection([(1, 2)])
    with pytest.raises(
        ConfigurationError, match="without windows works on bounded data only, but the source 'endless'"
    ):
        ends.join(endless(env)).where(first).equal_to(first).apply(lambda a, b: a)


# --- what a step reads from elsewhere ---------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 3])
def test_what_does_not_change_is_computed_once(parallelism: int, tmp_path: Path) -> None:
    """I3: with its partitioning, and though the step reads it twice."""
    marked = Marked(tmp_path / "marks")
    env = env_of(parallelism)
    loop = env.from_collection([(n, 0) for n in range(6)]).iterate(5)
    table = env.from_collection([(n, 1) for n in range(6)]).map(marked)
    added = loop.union(table).key_by(first).reduce(lambda a, b: (a[0], a[1] + b[1]))
    again = added.union(table).key_by(first).reduce(lambda a, b: (a[0], a[1] + b[1]))
    assert sorted(collect(loop.close_with(again))) == [(n, 10) for n in range(6)]
    assert marked.calls == 6


def test_a_side_output_and_a_cached_stream_are_read_in_a_step() -> None:
    """I3."""
    env = env_of(2)
    cached = env.from_collection([1, 2]).cache()
    loop = env.from_collection([0]).iterate(3)
    total = loop.union(cached).key_by(lambda n: 0).reduce(lambda a, b: a + b)
    assert collect(loop.close_with(total)) == [9]


def test_loops_follow_each_other_and_the_first_runs_once(caplog: pytest.LogCaptureFixture) -> None:
    """I3: the second begins with what the first came to, and reads it in every superstep."""
    env = env_of(2)
    one = env.from_collection([1]).iterate(3).name("one")
    ones = one.close_with(one.map(lambda n: n * 2))
    two = ones.iterate(2).name("two")
    with caplog.at_level(logging.INFO, "penstock.iterations"):
        assert collect(two.close_with(two.union(ones).key_by(lambda n: 0).reduce(lambda a, b: a + b))) == [24]
    assert [line.split(":")[0] for line in caplog.messages if ": superstep" in line] == [
        *["iteration 'one'"] * 3,
        *["iteration 'two'"] * 2,
    ]


def test_a_second_job_reads_the_result_and_runs_no_superstep_again(tmp_path: Path) -> None:
    """I3: two jobs of one program, in two execution modes."""
    marked = Marked(tmp_path / "marks")
    env = env_of(2)
    loop = env.from_collection([1, 2]).iterate(2)
    result = loop.close_with(loop.map(marked))
    assert sorted(collect(result)) == sorted(collect(result.map(int))) == [1, 2]
    assert marked.calls == 4


def test_a_step_sees_the_parallelism_that_is_asked_for() -> None:
    """B3, I3: in the loop as elsewhere."""
    env = env_of(4)
    loop = env.from_collection(range(100)).iterate(1).set_parallelism(2)
    result = loop.close_with(loop.map(Where()).set_parallelism(2))
    assert set(collect(result)) == {(0, 2)}  # one file of a collection's one subtask


class Where(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.place = runtime_context.get_index_of_this_subtask(), runtime_context.get_number_of_parallel_subtasks()

    def map(self, value: Any) -> Any:
        return self.place


# --- what functions are told ------------------------------------------------------------------------------------------


def test_functions_know_superstep_and_previous_aggregate() -> None:
    """I3: none in the first superstep."""
    loop = env_of(3).from_collection([[], [], []]).iterate(3)
    loop.register_aggregator("count", LongSumAggregator())
    assert collect(loop.close_with(loop.flat_map(Tell()))) == [[(1, None), (2, 3), (3, 3)]] * 3


def test_an_aggregate_that_nobody_added_to_is_empty(caplog: pytest.LogCaptureFixture) -> None:
    """I3."""
    loop = env_of().from_collection([1]).iterate(1)
    loop.register_aggregator("most", LongMaxAggregator()).register_aggregator("sum", DoubleSumAggregator())
    with caplog.at_level(logging.INFO, "penstock.iterations"):
        collect(loop.close_with(loop.map(int)))
    assert f"superstep 1: 1 records in the partial solution, most = {-(2**63)}, sum = 0.0, " in caplog.text


class Asks(MapFunction):
    def __init__(self, method: str, *arguments: Any) -> None:
        self.method, self.arguments = method, arguments

    def open(self, runtime_context: Any) -> None:
        getattr(runtime_context, self.method)(*self.arguments)

    def map(self, value: Any) -> Any:
        return value


QUESTIONS: list[tuple[Any, ...]] = [
    ("get_superstep_number",),
    ("get_iteration_aggregator", "sum"),
    ("get_previous_iteration_aggregate", "sum"),
]


@pytest.mark.parametrize("mode", ["BATCH", "STREAMING", "MICRO_BATCH"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_outside_of_a_loop_there_are_no_supersteps(question: tuple[Any, ...], mode: str) -> None:
    """I3: the error names the operator."""
    env = env_of(mode=mode, restart_strategy__type="none")
    with pytest.raises(UserFunctionError, match=rf"{question[0]}\(.*: operator 'ask' is not part of an iteration"):
        collect(env.from_collection([1]).map(Asks(*question)).name("ask"))


def test_what_is_computed_ahead_of_the_loop_is_in_no_superstep() -> None:
    """I3."""
    env = env_of()
    loop = env.from_collection([1]).map(Asks("get_superstep_number")).name("ask").iterate(1)
    with pytest.raises(UserFunctionError, match="operator 'ask' is not part of an iteration"):
        collect(loop.close_with(loop.map(int)))


@pytest.mark.parametrize("question", QUESTIONS[1:])
def test_an_aggregator_that_was_not_registered_is_an_error(question: tuple[Any, ...]) -> None:
    """I3: it says what there is."""
    loop = env_of().from_collection([1]).iterate(1).name("loop").register_aggregator("count", LongSumAggregator())
    with pytest.raises(UserFunctionError, match="iteration 'loop' has no aggregator 'sum'; registered: 'count'"):
        collect(loop.close_with(loop.map(Asks(*question))))


def test_functions_of_a_loop_have_no_accumulators() -> None:
    """I3: they would be lost."""
    loop = env_of().from_collection([1]).iterate(1)
    with pytest.raises(UserFunctionError, match="register an aggregator with the iteration"):
        collect(loop.close_with(loop.map(Asks("add_accumulator", "seen", IntCounter()))))


def test_one_name_is_registered_once_and_there_is_one_criterion() -> None:
    """I3."""
    loop = env_of().from_collection([1]).iterate(1)
    loop.register_aggregation_convergence_criterion("sum", LongSumAggregator(), LongZeroConvergence())
    with pytest.raises(ValueError, match="already has an aggregator 'sum'"):
        loop.register_aggregator("sum", LongSumAggregator())
    with pytest.raises(ValueError, match="already has a convergence criterion, of aggregator 'sum'"):
        loop.register_aggregation_convergence_criterion("more", LongSumAggregator(), LongZeroConvergence())
    with pytest.raises(TypeError, match="is not an Aggregator"):
        loop.register_aggregator("less", sum)  # type: ignore[arg-type]


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_step_that_fails_fails_the_job_and_leaves_nothing(tmp_path: Path) -> None:
    """G9, I3: the error has operator, subtask and record; another attempt begins anew."""
    data, seen = tmp_path / "data", tmp_path / "seen"
    env = env_of(2, penstock__cache__dir=data)
    result = sums(env, 22, 3, seen, AddUp(tmp_path / "failed", fails_in=2))
    with pytest.raises(UserFunctionError, match="RuntimeError: once") as caught:
        collect(result)
    assert caught.value.operator_name == "Map"
    assert "superstep 2" in caught.value.job_name
    assert caught.value.record_text in ("20", "21", "22")
    assert files_below(data) == []
    assert sorted(collect(result)) == list(range(3, 25))
    assert seen.read_text() == "1:231 1:231 2:253 3:275 "


def test_a_criterion_that_fails_fails_the_job() -> None:
    """I3: the error names aggregator and superstep."""
    loop = env_of().from_collection([1]).iterate(2)
    loop.register_aggregation_convergence_criterion("sum", DoubleSumAggregator(), Below(None))  # type: ignore[arg-type]
    with pytest.raises(JobExecutionError, match="criterion of aggregator 'sum' failed after superstep 1: TypeError"):
        collect(loop.close_with(loop.map(int)))


def test_cancelling_the_job_ends_the_superstep(tmp_path: Path) -> None:
    """E5, I3: and nothing is left of it."""
    mark, data = tmp_path / "running", tmp_path / "data"
    env = env_of(penstock__cache__dir=data)
    loop = env.from_collection(range(10)).iterate(1_000_000)
    loop.close_with(loop.map(Slowly(str(mark)))).print()
    job = env.execute_async()
    patience = threading.Event()
    while not mark.exists():
        patience.wait(0.01)
    job.cancel().result(10)
    with pytest.raises(JobExecutionError, match="cancelled"):
        job.wait()
    assert job.get_job_status().result() is JobStatus.CANCELED
    assert files_below(data) == []


def endless(env: Any) -> Any:
    source: Any = DataGeneratorSource(lambda n: (n, n), None)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "endless")


def test_unbounded_inputs_are_refused_by_name() -> None:
    """I3: as what the loop begins with, and as what its step reads."""
    env = env_of(mode="STREAMING")
    with pytest.raises(ConfigurationError, match="an iteration works on bounded data only, but the source 'endless'"):
        endless(env).map(lambda pair: pair).iterate(3)
    with pytest.raises(ConfigurationError, match="the source 'endless' never ends"):
        env.from_collection([(1, 1)]).iterate_delta(endless(env), 3, first)
    loop = env.from_collection([(1, 1)]).iterate(3).name("loop")
    with pytest.raises(
        ConfigurationError, match="iteration 'loop' works on bounded data only, but the source 'endless'"
    ):
        loop.close_with(loop.union(endless(env)))


# --- what is no loop --------------------------------------------------------------------------------------------------


def test_there_are_no_loops_within_loops() -> None:
    """I3: neither as the beginning of another, nor as what another's step reads."""
    env = env_of()
    outer = env.from_collection([1]).iterate(2)
    with pytest.raises(NotImplementedError, match="loops cannot be nested"):
        outer.map(int).iterate(2)
    inner = env.from_collection([1]).iterate(2)
    with pytest.raises(NotImplementedError, match="loops cannot be nested"):
        inner.close_with(inner.union(outer))


def test_a_step_has_no_sinks_and_nothing_but_the_result_leaves_it() -> None:
    """I3."""
    env = env_of()
    loop = env.from_collection([1]).iterate(2)
    loop.print()
    loop.close_with(loop.map(int))
    with pytest.raises(ConfigurationError, match="a step has no sinks"):
        env.execute()


def test_a_loop_that_was_not_closed_cannot_run() -> None:
    """I3."""
    loop = env_of().from_collection([1]).iterate(2)
    with pytest.raises(ConfigurationError, match="was not closed"):
        collect(loop.map(int))


def test_a_loop_is_closed_once() -> None:
    """I3."""
    loop = env_of().from_collection([1]).iterate(2)
    loop.close_with(loop)
    with pytest.raises(ValueError, match="is already closed"):
        loop.close_with(loop)


def test_a_function_that_cannot_travel_is_found_before_anything_runs() -> None:
    """E4, I3: as outside of loops."""
    env, lock = env_of(), threading.Lock()
    loop = env.from_collection([1]).iterate(2)
    result = loop.close_with(loop.map(lambda n: (lock, n)).name("locked"))
    with pytest.raises(ConfigurationError, match="operator 'locked' cannot be sent to workers"):
        result.execute_and_collect()


def test_an_aggregator_that_cannot_travel_is_found_before_anything_runs() -> None:
    """E4, I3: its name is told."""

    class Locked(LongSumAggregator):
        lock: Any = None

    aggregator = Locked()
    aggregator.lock = threading.Lock()
    loop = env_of().from_collection([1]).iterate(2).register_aggregator("locked", aggregator)
    with pytest.raises(ConfigurationError, match="aggregator 'locked' cannot be sent to workers"):
        loop.close_with(loop.map(int)).execute_and_collect()


def test_ids_are_for_the_result() -> None:
    """H3, I3: what a superstep begins with is in no savepoint."""
    loop = env_of().from_collection([1]).iterate(2)
    for settle in (loop.uid, loop.set_uid_hash):
        with pytest.raises(NotImplementedError, match="set it on the result"):
            settle("a" * 32)


# --- what lies where --------------------------------------------------------------------------------------------------


def test_only_the_result_is_left(tmp_path: Path) -> None:
    """I3: what a superstep has read is deleted when it is complete, and all that is not the result at the end."""
    env = env_of(2, penstock__cache__dir=tmp_path)
    collect(components(env, [1, 2, 3], [(1, 2), (2, 3)]))
    parts = [Path(name).parts for name in files_below(tmp_path)]
    assert {part[1] for part in parts} == {"solution-set"}
    assert len({part[2] for part in parts}) == 1  # of one superstep's job


def test_a_stream_keeps_the_result_below_its_checkpoints(tmp_path: Path) -> None:
    """G5, I3: where checkpoints and savepoints refer to it."""
    env = env_of(2, "STREAMING", execution__checkpointing__dir=tmp_path)
    loop = env.from_collection([1]).iterate(2)
    collect(loop.close_with(loop.map(int)))
    assert any("iterations" in name and "partial-solution" in name for name in files_below(tmp_path))


def test_data_that_the_program_cannot_see_fail_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """I3: on a cluster without a common directory; the error says what to set."""
    monkeypatch.setattr("penstock.drivers.client.iterations.is_whole", lambda directory: False)
    loop = env_of().from_collection([1]).iterate(2).name("loop")
    with pytest.raises(PenstockError, match=r"iteration 'loop': .* on a cluster set penstock\.cache\.dir or"):
        collect(loop.close_with(loop.map(int)))


def test_one_line_is_logged_for_a_superstep(caplog: pytest.LogCaptureFixture) -> None:
    """I3: its number, its records, and its seconds; nothing of its job."""
    loop = env_of().from_collection([1, 2]).iterate(2).name("doubling")
    with caplog.at_level(logging.INFO, "penstock"):
        collect(loop.close_with(loop.map(int)))
    lines = [line for line in caplog.messages if line.startswith("iteration")]
    assert [line.rpartition(",")[0] for line in lines[:2]] == [
        f"iteration 'doubling': superstep {n}: 2 records in the partial solution" for n in (1, 2)
    ]
    assert lines[2:] == ["iteration 'doubling': ended after 2 supersteps, the maximum"]
    assert len(caplog.messages) == 5


def test_a_loop_stands_in_plans_as_its_result() -> None:
    """B1: and the step can be looked at while it is being written."""
    env = env_of()
    loop = env.from_collection([1]).iterate(2).name("loop")
    assert "loop" in loop.map(int).name("doubled").explain()
    result = loop.close_with(loop.map(int))
    assert "loop" in result.explain()
    assert result.get_name() == "loop"


def test_types_are_those_of_the_result() -> None:
    """A2, I3."""
    stream = env_of().from_collection([1], type_info=Types.INT())
    loop = stream.iterate(2)
    assert loop.get_type() == Types.INT()
    assert loop.close_with(loop.map(str, output_type=Types.STRING())).get_type() == Types.STRING()


def test_a_stream_behind_a_loop_goes_on_from_a_savepoint(tmp_path: Path) -> None:
    """H2, I3: the reader goes on in the files that the savepoint refers to; each record comes once."""
    mark, out = tmp_path / "running", tmp_path / "out"

    def program(**options: Any) -> Any:
        env = env_of(1, "STREAMING", execution__checkpointing__dir=tmp_path / "checkpoints", **options)
        env.enable_checkpointing(20)
        loop = env.from_collection(range(300)).iterate(1)
        doubled = loop.rebalance().map(lambda n: n * 2).set_parallelism(4)  # so there are four files
        result = loop.close_with(doubled).uid("result").map(Slowly(str(mark))).uid("slow")
        sink = FileSink.for_row_format(str(out), Encoder.simple_string_encoder()).build()
        result.map(str).uid("text").sink_to(sink).uid("out")
        return env

    job = program().execute_async()
    patience = threading.Event()
    while not mark.exists():
        patience.wait(0.01)
    savepoint = job.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(60)
    assert len(lines_below(out)) < 300
    program(execution__state_recovery__path=savepoint).execute()
    assert sorted(map(int, lines_below(out))) == [n * 2 for n in range(300)]


def lines_below(directory: Path) -> list[str]:
    return [line for file in directory.rglob("part-*") for line in file.read_text().splitlines()]
