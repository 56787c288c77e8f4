"""One task of a batch job: keys come one after another, each to its end (I1, I2)."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import cloudpickle
import hypothesis.strategies as st
import pytest
from hypothesis import given

from penstock.base.accumulators import IntCounter, LongSumAggregator
from penstock.base.output_tag import OutputTag
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collection import CollectionSource
from penstock.datastream.functions import KeyedCoProcessFunction, KeyedProcessFunction, MapFunction
from penstock.datastream.state import ListStateDescriptor
from penstock.runtime.accumulators import accumulator_values
from penstock.runtime.batch.exchange import (
    ACCUMULATORS,
    CLIENT,
    COMMITTABLES,
    METRICS,
    PASSED_ON_PLACE,
    Consumer,
    Rows,
    enumerate_splits,
    loads_batch,
)
from penstock.runtime.batch.task import BatchTask, BatchVertex
from penstock.runtime.connector import Committer, Sink, SinkWriter
from penstock.runtime.operators.connector import SinkOperator, SourceOperator
from penstock.runtime.operators.keyed.aggregates import KeyedMergeOperator, KeyedReduceOperator
from penstock.runtime.operators.record.process import KeyedCoProcessOperator, KeyedProcessOperator
from penstock.runtime.operators.record.stateless import MapOperator
from penstock.runtime.records import MIN_TIMESTAMP, Batch
from penstock.runtime.supersteps import Superstep
from penstock.runtime.task.channels.result_partition import (
    BroadcastPartitioner,
    ForwardPartitioner,
    HashPartitioner,
    Partitioner,
)
from penstock.runtime.task.operator_chain import ChainedOperator, OutEdge, VertexProgram
from penstock.testing import VirtualClock

IN, OUT = 0, 9


def first(value: Any) -> Any:
    return value[0]


def vertex(factories: list[Any], *, inputs: int = 1, partitioner: Partitioner | None = None, **consumer: Any) -> Any:
    operators = tuple(ChainedOperator(f"op{i}", f"Op {i}", factory, i - 1) for i, factory in enumerate(factories))
    edges = () if partitioner is None else (OutEdge(OUT, len(operators) - 1, partitioner, None, "next"),)
    described = {"parallelism": 2, "max_parallelism": 8, "is_keyed": False, **consumer}
    return BatchVertex(
        job_id="job",
        name="vertex",
        parallelism=2,
        max_parallelism=8,
        program=cloudpickle.dumps(VertexProgram(operators, edges)),
        is_keyed=bool(factories[0]().is_keyed),
        inputs={IN + i: i for i in range(inputs)},
        consumers={OUT: Consumer(**described)},
        reaches_client=partitioner is None,
    )


def task(factories: list[Any], **options: Any) -> BatchTask:
    options.setdefault("partitioner", ForwardPartitioner())
    return BatchTask(vertex(factories, **options), 1, VirtualClock(), lambda ms: None)


def rows(*of: tuple[int, int, int | None, Any]) -> Rows:
    """(edge, place, time, value) each."""
    made = Rows()
    for number, (edge, place, timestamp, value) in enumerate(of):
        payload = pickle.dumps(([value], None) if place < 0 else value, 5)
        for column, item in zip(made.columns(), (edge, 1, place, timestamp, number, payload), strict=True):
            column.append(item)
    return made


def emitted(output: Any) -> list[Any]:
    return [v for part in output for e, p in zip(part.edges, part.payloads, strict=True) for v in _values(e, p)]


def _values(edge: int, payload: bytes) -> list[Any]:
    return loads_batch(payload).values if edge == OUT else []


class Remember(KeyedProcessFunction):
    """Gives, with a timer at the end of time and one before, what the key's state has."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        assert ctx.timer_service().current_watermark() == MIN_TIMESTAMP
        self.seen.add(value[1])
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 5)
        ctx.timer_service().register_processing_time_timer(10**15)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), ctx.time_domain().name[:5], timestamp, list(self.seen.get())


RECORDS = [("a", 7, 3), ("a", 7, 9), ("b", 8, 4), ("c", 9, 1), ("c", 9, 1), ("c", 9, 2)]


@given(st.lists(st.integers(1, 5), max_size=6))
def test_a_key_ends_when_its_last_record_has_come_however_the_rows_are_cut(cuts: list[int]) -> None:
    """I2: all timers of a key fire, by event time and then by processing time, over the whole of its state, and no
    watermark is seen before. Keys that come in the same rows end together."""
    all_rows = [(IN, place, moment, (key, moment)) for key, place, moment in RECORDS]
    borders = sorted({0, *cuts, len(all_rows)})
    parts = [rows(*all_rows[i:j]) for i, j in pairwise(borders)]
    found = emitted(task([partial(KeyedProcessOperator, Remember(), first)]).run(parts))
    by_key = {key: [rest for k, *rest in found if k == key] for key in "abc"}
    assert by_key == {
        "a": [["EVENT", 8, [3, 9]], ["EVENT", 14, [3, 9]], ["PROCE", 10**15, [3, 9]]],
        "b": [["EVENT", 9, [4]], ["PROCE", 10**15, [4]]],
        "c": [["EVENT", 6, [1, 1, 2]], ["EVENT", 7, [1, 1, 2]], ["PROCE", 10**15, [1, 1, 2]]],
    }


def test_state_is_forgotten_with_its_keys() -> None:
    """I2: what is held in memory does not grow with the number of keys."""
    made = task([partial(KeyedProcessOperator, Remember(), first)])
    keyed = made._chain.contexts[0].keyed
    held = [0]
    for _ in made.run(rows((IN, place, 1, (str(place), 1))) for place in range(10)):
        tables = keyed._tables.values()  # type: ignore[attr-defined]
        held.append(sum(len(entries) for table in tables for entries in table.panes.values()))
    assert max(held) == 1


def test_keys_that_share_a_place_are_kept_apart() -> None:
    """I2: a place is a hash: two keys may have one, and end together."""
    found = emitted(
        task([partial(KeyedReduceOperator, lambda x, y: (x[0], x[1] + y[1]), first)]).run(
            [rows((IN, 5, None, ("a", 1)), (IN, 5, None, ("b", 10)), (IN, 5, None, ("a", 2)), (IN, 6, None, ("c", 5)))]
        )
    )
    assert found == [("a", 3), ("b", 10), ("c", 5)]


class Both(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield "left", value

    def process_element2(self, value: Any, ctx: Any) -> Any:
        yield "right", value


def test_two_inputs_come_key_by_key_in_order_of_time() -> None:
    """I2, A1: not one input after the other."""
    head = partial(KeyedCoProcessOperator, Both(), "process", first, first)
    found = emitted(
        task([head], inputs=2).run(
            [rows((0, 3, 1, ("a", 1)), (1, 3, 2, ("a", 2)), (0, 3, 3, ("a", 3)), (1, 4, 1, ("b", 1)))]
        )
    )
    sides = ["left", "right", "left", "right"]
    assert found == list(zip(sides, [("a", 1), ("a", 2), ("a", 3), ("b", 1)], strict=True))


def test_rows_that_stand_for_nothing_are_passed_over() -> None:
    """I2: a task that nothing is sent to still gets a row that says which one it is."""
    nothing = Rows()
    nothing.append(IN, 1, 0, b"")
    assert emitted(task([partial(MapOperator, str)]).run([nothing, rows((IN, -1, None, 5))])) == ["5"]
    assert emitted(task([partial(KeyedProcessOperator, Remember(), first)]).run([nothing])) == []


def test_a_source_reads_its_splits_to_the_end() -> None:
    """I1: with timestamps, and no watermark but the last."""
    strategy: Any = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value: value * 10)
    source = CollectionSource(list(range(10)))
    made = task([partial(SourceOperator, source, strategy)], inputs=0)
    per_subtask = enumerate_splits(source, 2)
    assert sum(map(len, per_subtask)) == 1
    (splits,) = filter(None, per_subtask)
    batches = [
        loads_batch(payload)
        for part in made.run_source(splits)
        for edge, payload in zip(part.edges, part.payloads, strict=True)
        if edge == OUT
    ]
    assert [(v, t) for b in batches for v, t in zip(b.values, b.timestamps or [], strict=True)] == [
        (n, n * 10) for n in range(10)
    ]


def test_records_for_a_keyed_operator_go_where_streaming_sends_them() -> None:
    """I1, D4: the same subtask as in streaming; equal keys have one place, and it is not negative."""
    made = task([partial(MapOperator, first)], partitioner=HashPartitioner(lambda v: v), is_keyed=True)
    batch = Batch([("a",), (1,), (1.0,), (True,), ("b",), ("a",)])
    payload = pickle.dumps((batch.values, None), 5)
    given_rows = Rows()
    given_rows.append(IN, 1, 0, payload)
    (part,) = [p for p in made.run([given_rows]) if len(p)]
    streamed = HashPartitioner(lambda v: v)
    streamed.set_up(1, 2, 8)
    channels = {v: c for c, b in streamed.split(Batch(["a", 1, "b"])) for v in b.values}
    assert part.targets == [channels[key] for key in ("a", 1, 1, 1, "b", "a")]
    assert part.places[1] == part.places[2] == part.places[3]
    assert part.places[0] == part.places[5] != part.places[4]
    assert min(part.places) >= 0
    assert part.sequences == sorted(set(part.sequences))


def test_a_broadcast_goes_to_every_subtask() -> None:
    """B3."""
    made = task([partial(MapOperator, str)], partitioner=BroadcastPartitioner(), parallelism=3)
    output = [p for p in made.run([rows((IN, -1, None, 5))]) if len(p)]
    assert [target for part in output for target in part.targets] == [0, 1, 2]


class TwoPhase(Sink[Any]):
    def create_writer(self, context: Any) -> SinkWriter[Any, Any]:
        return _Writer(context)

    def create_committer(self, context: Any) -> Committer[Any]:
        return _NeverAsked()


class _NeverAsked(Committer[Any]):
    def commit(self, committables: Any) -> None:
        pytest.fail("a task commits nothing")


class _Writer(SinkWriter[Any, Any]):
    def __init__(self, context: Any) -> None:
        self.context = context
        self.values: list[Any] = []

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        self.values += values
        self.context.emit_to_client(b"%d" % len(values))

    def prepare_commit(self) -> list[Any]:
        return [tuple(self.values)]


def test_what_a_sink_prepares_leaves_the_task() -> None:
    """I2, G9: committing is for whoever knows that all tasks have ended; so are bytes for the client."""
    factories = [partial(MapOperator, lambda value: -value), partial(SinkOperator, TwoPhase())]
    made = task(factories, partitioner=None)
    parts = list(made.run([rows((IN, -1, None, 1), (IN, -1, None, 2))]))
    left = [
        (kind, operator, payload)
        for part in parts
        for kind, operator, payload in zip(part.edges, part.targets, part.payloads, strict=True)
        if kind != METRICS
    ]
    assert left == [(CLIENT, 1, b"1"), (CLIENT, 1, b"1"), (COMMITTABLES, 1, pickle.dumps([(-1, -2)], 5))]


class CountsBoth(MapFunction):
    """Counts with an accumulator, and adds up with the aggregator of a superstep where there is one."""

    def __init__(self, in_superstep: bool = False) -> None:
        self.in_superstep = in_superstep

    def open(self, runtime_context: Any) -> None:
        if self.in_superstep:
            self.add = runtime_context.get_iteration_aggregator("sum").aggregate
        else:
            counter = IntCounter()
            runtime_context.add_accumulator("seen", counter)
            self.add = lambda value: counter.add(1)

    def map(self, value: Any) -> Any:
        self.add(value)
        return value


def accumulated(output: Any, reaches_client: bool = True) -> dict[str, Any]:
    rows_of = [zip(part.edges, part.targets, part.places, part.payloads, strict=True) for part in output]
    found = [row for part in rows_of for row in part if row[2] == PASSED_ON_PLACE or row[0] == ACCUMULATORS]
    assert {(edge, target) for edge, target, _, _ in found} == {(ACCUMULATORS, 0) if reaches_client else (OUT, 1)}
    return accumulator_values(pair for *_, payload in found for pair in pickle.loads(payload))


@pytest.mark.parametrize("keyed", [False, True])
def test_accumulators_go_on_with_the_records_until_they_reach_the_client(keyed: bool) -> None:
    """I2, A1: a task that does not reach it sends its own, and those that came with its input, to one consumer."""
    head = partial(KeyedReduceOperator, max, lambda n: n) if keyed else partial(MapOperator, int)
    factories = [head, partial(MapOperator, CountsBoth())]
    from_above = rows((IN, -1, None, 1))
    from_above.places[0] = PASSED_ON_PLACE
    from_above.payloads[0] = pickle.dumps([("seen", pickle.dumps(IntCounter(40)))], 5)
    places = (0, 1) if keyed else (-1, -1)
    numbers = rows(*((IN, place, None, n) for n, place in enumerate(places)))
    for reaches_client in (True, False):
        described = replace(vertex(factories, partitioner=ForwardPartitioner()), reaches_client=reaches_client)
        made = BatchTask(described, 1, VirtualClock(), lambda ms: None)
        assert accumulated(list(made.run([from_above, numbers])), reaches_client) == {"seen": 42}


def test_a_data_frame_has_no_client_to_tell_accumulators() -> None:
    """I2, A1: so they are refused, not lost."""
    described = replace(vertex([partial(MapOperator, CountsBoth())]), has_client=False)
    with pytest.raises(NotImplementedError, match="accumulator 'seen': a stream that is turned into a data frame"):
        list(BatchTask(described, 1, VirtualClock(), lambda ms: None).run([rows((IN, -1, None, 1))]))


def test_aggregators_of_a_superstep_leave_as_accumulators_do() -> None:
    """I3: each operator has a copy of its own, and what all have come to is one figure."""
    factories = [partial(MapOperator, CountsBoth(True)), partial(MapOperator, CountsBoth(True))]
    superstep = Superstep("loop", 1, cloudpickle.dumps({"sum": LongSumAggregator()}), pickle.dumps({}))
    described = replace(vertex(factories), superstep=superstep)
    made = BatchTask(described, 1, VirtualClock(), lambda ms: None)
    output = list(made.run([rows((IN, -1, None, 3), (IN, -1, None, 4))]))
    assert accumulated(output) == {"aggregate:sum": 14}


@given(st.permutations([(0, ("a", 1)), (0, ("b", 1)), (1, ("b", 2)), (1, ("c", 3))]))
def test_a_delta_wins_over_what_a_key_had_in_whatever_order_they_come(order: Any) -> None:
    """I3: also for keys that share a place; timestamps stay."""
    made = task([partial(KeyedMergeOperator, first)], inputs=2)
    output = list(made.run([rows(*((IN + number, 5, value[1], value) for number, value in order))]))
    assert sorted(emitted(output)) == [("a", 1), ("b", 2), ("c", 3)]
    batches = [loads_batch(p) for part in output for e, p in zip(part.edges, part.payloads, strict=True) if e == OUT]
    assert all(batch.timestamps == [value[1] for value in batch.values] for batch in batches)


def test_side_outputs_go_their_own_way() -> None:
    """A2: an edge of a side output has the side's records only."""
    tag = OutputTag("odd")

    class Split(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield (tag, value) if value[1] % 2 else value

    program = VertexProgram(
        (ChainedOperator("op", "Op", partial(KeyedProcessOperator, Split(), first)),),
        (OutEdge(OUT, 0, ForwardPartitioner()), OutEdge(OUT + 1, 0, ForwardPartitioner(), "odd")),
    )
    consumer = Consumer(2, 8, False)
    described = BatchVertex(
        "job", "vertex", 2, 8, cloudpickle.dumps(program), True, {IN: 0}, {OUT: consumer, OUT + 1: consumer}
    )
    made = BatchTask(described, 1, VirtualClock(), lambda ms: None)
    output = list(made.run([rows((IN, 1, None, ("a", 1)), (IN, 1, None, ("a", 2)))]))
    by_edge: dict[int, list[Any]] = {OUT: [], OUT + 1: []}
    for part in output:
        for edge, payload in zip(part.edges, part.payloads, strict=True):
            if edge != METRICS:
                by_edge[edge] += loads_batch(payload).values
    assert by_edge == {OUT: [("a", 2)], OUT + 1: [("a", 1)]}


class Times(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, ctx.timestamp()


def test_records_with_and_without_timestamps_stay_apart() -> None:
    """I2: a union may have both."""
    found = emitted(
        task([partial(KeyedProcessOperator, Times(), first)]).run(
            [rows((IN, 5, None, ("a", 1)), (IN, 5, 7, ("a", 2)), (IN, 6, None, ("b", 3)), (IN, 6, 9, ("b", 4)))]
        )
    )
    assert found == [(("a", 1), None), (("a", 2), 7), (("b", 3), None), (("b", 4), 9)]
