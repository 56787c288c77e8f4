"""From programs to job graphs: ids, chaining, parallelism, what is refused."""

import pickle
import threading

import pytest

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.output_tag import OutputTag
from penstock.base.time import Duration
from penstock.base.types import Row
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedBroadcastProcessFunction, MapFunction
from penstock.datastream.slot_sharing_group import MemorySize, SlotSharingGroup
from penstock.datastream.state import MapStateDescriptor
from penstock.runtime.graph import ExecutionGraph
from penstock.runtime.job.slots import deployments
from penstock.runtime.task.stream_task import task_settings
from penstock.state import migrations
from penstock.testing import VirtualClock


def environment(parallelism=2, **options):
    configuration = Configuration()
    for key, value in options.items():
        configuration.set_string(key, value)
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)


def shape(env):
    """`["name xparallelism"], [(source, target, partitioning)]`."""
    graph = env.job_graph()
    names = [f"{v.name} x{v.parallelism}" for v in graph.vertices]
    edges = [(graph.vertices[e.source].name, graph.vertices[e.target].name, e.partitioning) for e in graph.edges]
    return names, edges


def ident(value):
    return value


def test_forward_neighbours_are_chained():
    """B1, B4: forward neighbours of one parallelism are one vertex; a key_by cuts."""
    env = environment()
    stream = env.from_collection([1]).map(ident).filter(ident)
    stream.key_by(ident).reduce(max).map(ident).print()
    names, edges = shape(env)
    assert names == [
        "Collection Source x1",
        "Map -> Filter x2",
        "Keyed Reduce -> Map -> Print x2",
    ]
    assert [e[2] for e in edges] == ["REBALANCE", "HASH"]


def test_chaining_can_be_switched_off():
    """B4: without chaining every operator is a task."""
    env = environment(1).disable_operator_chaining()
    env.from_collection([1]).map(ident).print()
    names, edges = shape(env)
    assert names == ["Collection Source x1", "Map x1", "Print x1"]
    assert [e[2] for e in edges] == ["FORWARD", "FORWARD"]


@pytest.mark.parametrize(
    ("partition", "partitioning"),
    [("rebalance", "REBALANCE"), ("broadcast", "BROADCAST"), ("global_", "GLOBAL")],
)
def test_redistributing_edges_cut_chains(partition, partitioning):
    """B3: an explicit partitioning is an edge, also between equal parallelisms."""
    env = environment()
    getattr(env.from_collection([1]).map(ident), partition)().map(ident)
    names, edges = shape(env)
    assert names == ["Collection Source x1", "Map x2", "Map x2"]
    assert edges[1][2] == partitioning


def test_branches_and_side_outputs_in_one_chain():
    """B4: several consumers of one operator are chained to it, side outputs too."""
    env = environment(1)
    stream = env.from_collection([1]).flat_map(lambda v: [v]).name("A")
    stream.map(ident).name("B").print()
    stream.get_side_output(OutputTag("t")).map(ident).name("C")
    (vertex,) = env.job_graph().vertices
    program = pickle.loads(vertex.program)
    assert [(o.name, o.parent, o.side_tag) for o in program.operators] == [
        ("Collection Source", -1, None),
        ("A", 0, None),
        ("B", 1, None),
        ("Print", 2, None),
        ("C", 1, "t"),
    ]
    assert vertex.side_outputs == (("A", "t"),)


def test_programs_carry_what_became_of_classes():
    """H4: what is registered when a job is made goes to its workers."""
    env = environment(1)
    env.from_collection([1]).map(ident).print()
    migrations.register("old.module:Visit", Row)
    try:
        (vertex,) = env.job_graph().vertices
    finally:
        migrations.unregister("old.module:Visit")
    assert pickle.loads(vertex.program).migrations == {"old.module:Visit": Row}


def test_union_is_no_operator():
    """A2: a union is several edges into one operator; it cannot be named."""
    env = environment(1)
    one, two = env.from_collection([1]), env.from_collection([2])
    union = one.union(two, one)
    with pytest.raises(TypeError, match="a union is not an operator"):
        union.name("x")
    union.map(ident)
    names, edges = shape(env)
    assert len(names) == 3
    assert len(edges) == 3


def test_slots_required():
    """E3: a job needs as many slots as its highest parallelism."""
    env = environment(2)
    env.from_collection([1]).map(ident).set_parallelism(5).print()
    assert env.job_graph().slots_required == 5


# --- ids ------------------------------------------------------------------------------------------------------------


def ids(build):
    env = environment()
    build(env)
    return {o.name: o.operator_id for v in env.job_graph().vertices for o in v.operators}


def test_ids_are_stable():
    """H3: the same program has the same ids, whatever its functions do and are called."""
    first = ids(lambda env: env.from_collection([1]).map(ident).name("m"))
    second = ids(lambda env: env.from_collection([2, 3]).map(lambda v: v + 1).name("m"))
    assert first == second


def test_uid_survives_changes_upstream():
    """H3: an operator with a uid keeps its id when the program around it changes; one without does not."""

    def small(env):
        env.from_collection([1]).map(ident).name("m").uid("my-map").map(ident).name("n")

    def larger(env):
        env.from_collection([1]).filter(ident).map(ident).name("m").uid("my-map").map(ident).name("n")

    assert ids(small)["m"] == ids(larger)["m"]
    assert ids(small)["Collection Source"] == ids(larger)["Collection Source"]


def test_ids_are_unique():
    """H3: no two operators share an id."""
    env = environment()
    stream = env.from_collection([1])
    for _ in range(5):
        stream.map(ident).print()
    found = [o.operator_id for v in env.job_graph().vertices for o in v.operators]
    assert len(set(found)) == len(found) == 11


# --- what is refused ------------------------------------------------------------------------------------------------


def test_duplicate_uid():
    """H3: a uid used twice is refused, naming both operators."""
    env = environment()
    stream = env.from_collection([1])
    stream.map(ident).name("first").uid("same")
    stream.map(ident).name("second").uid("same")
    with pytest.raises(ConfigurationError, match=r"'same'.*'first'.*'second'"):
        env.job_graph()


def test_duplicate_uid_and_name():
    """H3: also when the operators have the same name."""
    env = environment()
    stream = env.from_collection([1])
    stream.map(ident).uid("same")
    stream.map(ident).uid("same")
    with pytest.raises(ConfigurationError, match="'same'"):
        env.job_graph()


def test_forward_between_different_parallelisms():
    """B3: forward between operators of different parallelism is refused, with both names and numbers."""
    env = environment(2)
    env.from_collection([1]).map(ident).name("two").forward().map(ident).name("three").set_parallelism(3)
    with pytest.raises(ConfigurationError, match=r"'two' \(parallelism 2\) to 'three' \(parallelism 3\).*rebalance"):
        env.job_graph()


def test_parallelism_past_its_limits():
    """B2: a parallelism over the maximum, or over what a source can take, is refused by name."""
    env = environment(2).set_max_parallelism(4)
    env.from_collection([1]).map(ident).name("wide").set_parallelism(5)
    with pytest.raises(ConfigurationError, match="'wide' has parallelism 5, over its maximum parallelism 4"):
        env.job_graph()
    env = environment(2)
    env.from_collection([1]).set_parallelism(2)
    with pytest.raises(ConfigurationError, match="'Collection Source' can have at most parallelism 1"):
        env.job_graph()
    with pytest.raises(ValueError, match="at least 1"):
        env.from_collection([1]).set_parallelism(0)


class Holds(MapFunction):
    def __init__(self):
        self.lock = threading.Lock()

    def map(self, value):
        return value


def test_unserialisable_function():
    """B1: a function that cannot be sent is found at build, named, with what to do."""
    env = environment()
    env.from_collection([1]).map(Holds()).name("My Map")
    with pytest.raises(ConfigurationError, match=r"'My Map' cannot be sent to workers.*open\(\)"):
        env.job_graph()


def test_unserialisable_key_selector():
    """B1: the same for a key selector."""
    lock = threading.Lock()
    env = environment()
    env.from_collection([1]).key_by(lambda v: (lock.locked(), v)).reduce(max).name("My Reduce")
    with pytest.raises(ConfigurationError, match="'My Reduce'"):
        env.job_graph()


def test_function_that_refuses_with_any_error():
    """B1: whatever pickling raises, the operator is named."""

    class Refuses(MapFunction):
        def __reduce__(self):
            raise RuntimeError("I stay here")

        def map(self, value):
            return value

    env = environment()
    env.from_collection([1]).map(Refuses()).name("My Map")
    with pytest.raises(ConfigurationError, match="'My Map'"):
        env.job_graph()


def test_nothing_to_execute():
    """E1: an empty program is refused."""
    with pytest.raises(ValueError, match="nothing to execute"):
        environment().job_graph()


def test_the_job_graph_says_that_it_is_for_batch_execution():
    """I1: as the program is told, and as its sources are."""
    env = environment(**{"execution.runtime-mode": "BATCH"})
    env.from_collection([1])
    assert env.job_graph().mode == "BATCH"


# --- what a program says about operators ----------------------------------------------------------------------------


def chains(env):
    return [v.name for v in env.job_graph().vertices]


def test_chains_begun_and_cut_by_hand():
    """B4: start_new_chain cuts ahead of an operator, disable_chaining on both sides; sinks too."""

    def program(setting):
        env = environment(1)
        stream = env.from_collection([1]).map(ident).name("a").map(ident).name("b")
        setting(stream).map(ident).name("c").print().disable_chaining()
        return chains(env)

    assert program(lambda s: s) == ["Collection Source -> a -> b -> c", "Print"]
    assert program(lambda s: s.start_new_chain()) == ["Collection Source -> a", "b -> c", "Print"]
    assert program(lambda s: s.disable_chaining()) == ["Collection Source -> a", "b", "c", "Print"]


def test_slot_sharing_groups():
    """E3: groups do not share slots, are not chained, and pass to what follows."""
    env = environment(2)
    stream = env.from_collection([1]).map(ident).name("a").slot_sharing_group("one").map(ident).name("b")
    stream.map(ident).name("c").set_parallelism(3).slot_sharing_group(SlotSharingGroup.builder("two").build())
    graph = env.job_graph()
    assert [(v.name, v.slot_sharing_group) for v in graph.vertices] == [
        ("Collection Source", "default"),
        ("a -> b", "one"),
        ("c", "two"),
    ]
    assert graph.slots_required == 1 + 2 + 3
    workers = [f"worker-{i}" for i in range(6)]
    addresses = {worker: worker for worker in workers}
    sent = deployments(
        ExecutionGraph(graph, VirtualClock()), "job", workers, addresses, task_settings(Configuration()), None
    )
    assert {str(message.execution): worker for worker, message in sent} == {
        "0.0#0": "worker-0",
        "1.0#0": "worker-1",
        "1.1#0": "worker-2",
        "2.0#0": "worker-3",
        "2.1#0": "worker-4",
        "2.2#0": "worker-5",
    }
    a = sent[1][1]
    assert a.inputs[0].producers == ((0, "worker-0"),)
    assert a.outputs[0].consumers == ((0, "worker-3"), (1, "worker-4"), (2, "worker-5"))


class Nothing(KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx): ...

    def process_broadcast_element(self, value, ctx): ...


def test_barriers_overtake_on_no_edge_into_a_task_with_a_broadcast_input():
    """G5: neither on the broadcast nor on the task's other inputs, and at both ends of each; elsewhere they do."""
    env = environment(2)
    rules = env.from_collection([1]).map(ident).name("rules")
    records = env.from_collection([1]).key_by(ident).reduce(max).name("records")
    connected = records.key_by(ident).connect(rules.broadcast(MapStateDescriptor("rules")))
    connected.process(Nothing()).name("both").rebalance().map(ident).name("behind")
    rules.rebalance().map(ident).name("beside")
    graph = env.job_graph()
    workers = [f"worker-{i}" for i in range(graph.slots_required)]
    execution_graph, settings = ExecutionGraph(graph, VirtualClock()), task_settings(Configuration())
    sent = deployments(execution_graph, "job", workers, {w: w for w in workers}, settings, None)
    into = {i.edge: i.supports_unaligned for _, message in sent for i in message.inputs}
    assert into == {o.edge: o.supports_unaligned for _, message in sent for o in message.outputs}
    names = [(graph.vertices[e.source].name, graph.vertices[e.target].name) for e in graph.edges]
    assert {name: into[edge.index] for name, edge in zip(names, graph.edges, strict=True)} == {
        ("Collection Source", "rules"): True,
        ("Collection Source", "records"): True,
        ("records", "both"): False,
        ("rules", "both"): False,
        ("both", "behind"): True,
        ("rules", "beside"): True,
    }


def test_resources_of_groups_are_refused():
    """E3: slots are Spark tasks, all alike; a wish that would not be heard says so."""
    group = SlotSharingGroup.builder("big").set_task_heap_memory_mb(512).set_cpu_cores(2.0).build()
    assert (group.get_task_heap_memory(), group.get_cpu_cores()) == (MemorySize(512 << 20), 2.0)
    with pytest.raises(NotImplementedError, match=r"'big' has resources.*spark.executor.memory"):
        environment().from_collection([1]).slot_sharing_group(group)


def test_buffer_timeout_of_an_operator():
    """B1: a task sends the buffers of its operators by the shortest of their times; without any, by the job's."""

    def timeouts(env):
        return [pickle.loads(v.program).buffer_timeout_ms for v in env.job_graph().vertices]

    env = environment(1, **{"execution.buffer-timeout.interval": "40 ms"})
    source = env.from_collection([1])
    source.map(ident).rebalance().map(ident)
    assert timeouts(env) == [None, None]
    env = environment(1, **{"execution.buffer-timeout.interval": "40 ms"})
    one = env.from_collection([1]).set_buffer_timeout(-1)
    one.map(ident).set_buffer_timeout(7).rebalance().map(ident).set_buffer_timeout(Duration.of_seconds(1))
    one.rebalance().map(ident)
    assert timeouts(env)[0] == 7
    with pytest.raises(ValueError, match="-2"):
        one.set_buffer_timeout(-2)


def test_uid_hash_is_the_id():
    """H3: an operator's id can be given outright, and belongs to one operator only."""
    env = environment(1)
    stream = env.from_collection([1]).map(ident).name("m").set_uid_hash("AB" * 16)
    assert [o.operator_id for v in env.job_graph().vertices for o in v.operators][1] == "ab" * 16
    stream.map(ident).name("n").set_uid_hash("ab" * 16)
    with pytest.raises(ConfigurationError, match="'m' and of 'n'"):
        env.job_graph()
    with pytest.raises(ValueError, match="32 hexadecimal digits"):
        stream.set_uid_hash("xy")


def test_not_parallel_by_force():
    """B2: one subtask, now and after a rescaling."""
    env = environment(4)
    env.from_collection([1]).map(ident).force_non_parallel()
    vertex = env.job_graph().vertices[-1]
    assert (vertex.parallelism, vertex.max_parallelism) == (1, 1)
    with pytest.raises(ValueError, match="32768"):
        env.from_collection([1]).set_max_parallelism(1 << 16)


@pytest.mark.parametrize(("call", "name", "pointwise"), [("rescale", "RESCALE", True), ("shuffle", "SHUFFLE", False)])
def test_edges_of_other_partitionings(call, name, pointwise):
    """B3: plans tell them by name."""
    env = environment(2)
    getattr(env.from_collection([1]).map(ident), call)().map(ident)
    edge = env.job_graph().edges[1]
    assert (edge.partitioning, edge.is_pointwise) == (name, pointwise)


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH", "MICRO_BATCH"])
def test_the_graph_knows_its_execution_mode(mode: str) -> None:
    """I1: as configured; automatic mode is batch for bounded sources."""
    for configured, expected in [(mode, mode), ("AUTOMATIC", "BATCH")]:
        env = environment(**{"execution.runtime-mode": configured})
        env.from_collection([1])
        assert env.job_graph().mode == expected
