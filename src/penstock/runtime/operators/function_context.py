"""The contexts of operators and user functions: task services, operator state, and notifications of checkpoints.

`OperatorContext` is the context that a task passes to its operators.

`RuntimeContext` is the view that a rich function has of the subtask running it, as in PyFlink.

`CheckpointedFunction` gives user functions operator state, as in Flink (D2).

`CheckpointListener` receives notifications of completed and aborted checkpoints, as in Flink.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from penstock.base.accumulators import Accumulator, Aggregator
from penstock.base.errors import UnsupportedError, WrongTimeError, WrongValueError
from penstock.base.metrics import MetricGroup, MetricRegistry, SlidingHistogram
from penstock.runtime.ports import Clock, Coroutines
from penstock.runtime.supersteps import SuperstepContext
from penstock.state import states, views
from penstock.state.backend import KeyedStateBackend
from penstock.state.key_columns import ColumnStates
from penstock.state.operator_state import OperatorStateBackend, OperatorStateStore

#: How many timers a key may set after the end of its input, unless the job configures another limit.
TIMERS_AFTER_END_MAX: Final = 100_000


@dataclass
class OperatorContext:
    """An operator's access to its task."""

    job_id: str
    operator_id: str
    operator_name: str
    task_name: str
    subtask_index: int
    parallelism: int
    max_parallelism: int
    attempt: int
    clock: Clock
    checkpointing: bool
    keyed: KeyedStateBackend
    operator_state: OperatorStateBackend
    emit_to_client: Callable[[bytes], None]
    request_split: Callable[[], None]
    counters: dict[str, int] = field(default_factory=dict)
    migrations: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    #: how often (ms) the clock queries watermark generators; 0 for never
    auto_watermark_interval_ms: int = 200
    #: reports the watermark (ms) of an aligned source to the job master; None without alignment
    report_watermark: Callable[[int], None] | None = None
    #: sends a pickled event of a source reader to its enumerator; None where the enumerator is gone
    send_source_event: Callable[[bytes], None] | None = None
    #: Whether the operator sees its keys one after another, each to its end (`runtime.batch`).
    is_batch: bool = False
    job_parameters: Mapping[str, str] = field(default_factory=dict)
    accumulators: dict[str, Accumulator[Any, Any]] = field(default_factory=dict)
    #: how many timers a key may set after the end of its input, see `runtime.operators.timers`
    timers_after_end_max: int = TIMERS_AFTER_END_MAX
    #: restored state in columns, see `state.key_columns`
    columns: ColumnStates = field(default_factory=ColumnStates)
    #: None if the driver has no event loop
    coroutines: Coroutines | None = None
    #: None outside iterations
    superstep: SuperstepContext | None = None
    #: identifies this run of the task within the job; the attempt does so where no task runs twice at a time
    run: str = ""
    #: the jobs that this one continues, until it has a checkpoint of its own
    forerunners: tuple[str, ...] = ()
    #: whether everything is committed that earlier runs of the job have prepared and any checkpoint names
    owes_nothing: bool = False
    #: records that it has passed to the next operator by doing that operator's work as well
    fused_records: int = 0
    #: fired timers of functions and windows
    fired_timers: int = 0
    #: the states that the operator's functions have looked up, by name
    user_states: dict[str, states.Sampled] = field(default_factory=dict)
    #: measures the latency of state accesses; None if that is not enabled
    state_latency: states.StateLatency | None = None
    #: ages (ms) of latency markers, by the name of their histogram (`runtime.task.channels.input_gate`)
    latency: dict[str, SlidingHistogram] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.run = self.run or str(self.attempt)
        self.metrics = MetricRegistry(self.clock.now_ms)
        self.keyed.now_ms = self.clock.now_ms
        self.keyed.migrations = self.migrations
        self.columns.owner = self.operator_name

    @property
    def restored_checkpoint_id(self) -> int | None:
        """The checkpoint or savepoint that the task began from, or None."""
        return self.operator_state.restored_checkpoint_id

    def now_ms(self) -> int:
        """Return processing time in ms."""
        return self.clock.now_ms()

    def count(self, name: str, increment: int = 1) -> None:
        """Add to a named counter of this operator."""
        self.counters[name] = self.counters.get(name, 0) + increment


S = TypeVar("S", bound=states.State)


class KeyedStateStore:
    """The keyed state of the subtask that runs a function."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context

    def get_state(self, state_descriptor: states.ValueStateDescriptor) -> states.ValueState[Any]:
        """Return the value state of the current key; raises `StateError` on a non-keyed stream.

        Examples:
            >>> from penstock.datastream import KeyedProcessFunction
            >>> from penstock.datastream.state import ValueStateDescriptor
            >>> class Last(KeyedProcessFunction):
            ...     def open(self, runtime_context):
            ...         self.last = runtime_context.get_state(ValueStateDescriptor("last"))
            ...     def process_element(self, value, ctx):
            ...         yield self.last.value()
            ...         self.last.update(value)
            >>> with harness_for(Last(), len) as harness:
            ...     harness.process_batch(["tea", "rum"])
            ...     harness.values
            [None, 'tea']
        """
        state = views.declared_value_state(
            state_descriptor, views.open_value_state(self._context.keyed, state_descriptor)
        )
        return self._followed(state_descriptor, state)

    def get_list_state(self, state_descriptor: states.ListStateDescriptor) -> states.ListState[Any]:
        """Return the list state of the current key; raises `StateError` on a non-keyed stream.

        Examples:
            >>> from penstock.datastream import KeyedProcessFunction
            >>> from penstock.datastream.state import ListStateDescriptor
            >>> class Words(KeyedProcessFunction):
            ...     def open(self, runtime_context):
            ...         self.words = runtime_context.get_list_state(ListStateDescriptor("words"))
            ...     def process_element(self, value, ctx):
            ...         self.words.add(value)
            ...         yield self.words.get()
            >>> with harness_for(Words(), len) as harness:
            ...     harness.process_batch(["tea", "rum"])
            ...     harness.values
            [['tea'], ['tea', 'rum']]
        """
        state = views.declared_list_state(
            state_descriptor, views.open_list_state(self._context.keyed, state_descriptor)
        )
        return self._followed(state_descriptor, state)

    def get_map_state(self, state_descriptor: states.MapStateDescriptor) -> states.MapState[Any, Any]:
        """Return the map state of the current key; raises `StateError` on a non-keyed stream.

        Examples:
            >>> from penstock.datastream import KeyedProcessFunction
            >>> from penstock.datastream.state import MapStateDescriptor
            >>> class Cups(KeyedProcessFunction):
            ...     def open(self, runtime_context):
            ...         self.cups = runtime_context.get_map_state(MapStateDescriptor("cups"))
            ...     def process_element(self, value, ctx):
            ...         self.cups.put(value, (self.cups.get(value) or 0) + 1)
            ...         yield dict(self.cups.items())
            >>> with harness_for(Cups(), len) as harness:
            ...     harness.process_batch(["tea", "rum", "tea"])
            ...     harness.values[-1]
            {'tea': 2, 'rum': 1}
        """
        state = views.declared_map_state(state_descriptor, views.open_map_state(self._context.keyed, state_descriptor))
        return self._followed(state_descriptor, state)

    def get_reducing_state(self, state_descriptor: states.ReducingStateDescriptor) -> states.ReducingState[Any]:
        """Return the reducing state of the current key; raises `StateError` on a non-keyed stream."""
        state = views.declared_reducing_state(state_descriptor, partial(views.open_reducing_state, self._context.keyed))
        return self._followed(state_descriptor, state)

    def get_aggregating_state(
        self, state_descriptor: states.AggregatingStateDescriptor
    ) -> states.AggregatingState[Any, Any]:
        """Return the aggregating state of the current key; raises `StateError` on a non-keyed stream."""
        state = views.declared_aggregating_state(
            state_descriptor, partial(views.open_aggregating_state, self._context.keyed)
        )
        return self._followed(state_descriptor, state)

    def _followed(self, descriptor: states.StateDescriptor, state: S) -> S:
        self._context.user_states[descriptor.name] = state
        latency = self._context.state_latency
        return state if latency is None else latency.follow(descriptor.name, state)


class RuntimeContext(KeyedStateStore):
    """Index, parallelism, attempt and keyed state of the subtask that runs a function (A1).

    Examples:
        >>> from penstock.datastream import MapFunction
        >>> from penstock.testing import harness_for
        >>> class Where(MapFunction):
        ...     def open(self, runtime_context):
        ...         self.subtask = runtime_context.get_index_of_this_subtask()
        ...         self.parallelism = runtime_context.get_number_of_parallel_subtasks()
        ...     def map(self, value):
        ...         return value, self.subtask, self.parallelism
        >>> with harness_for(Where(), parallelism=2, subtask=1) as harness:
        ...     harness.process("tea")
        ...     harness.values
        [('tea', 1, 2)]
    """

    def get_task_name(self) -> str:
        """Return the name of the task, for example `Map -> Filter`."""
        return self._context.task_name

    def get_number_of_parallel_subtasks(self) -> int:
        """Return the parallelism of the operator."""
        return self._context.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the maximum parallelism: the number of key groups."""
        return self._context.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        """Return the index of this subtask, from 0."""
        return self._context.subtask_index

    def get_attempt_number(self) -> int:
        """Return the number of earlier attempts of this subtask."""
        return self._context.attempt

    def get_task_name_with_subtasks(self) -> str:
        """Return the task's name with the subtask's number from 1, as in `Map (2/4)`."""
        context = self._context
        return f"{context.task_name} ({context.subtask_index + 1}/{context.parallelism})"

    def get_job_id(self) -> str:
        """Return the job's id, 32 hexadecimal digits."""
        return self._context.job_id

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return one of the user's own settings (`ExecutionConfig.set_global_job_parameters`), or the default."""
        return self._context.job_parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        """Return the metric group for the function's own metrics; see `penstock.metrics`."""
        return MetricGroup(self._context.metrics)

    def add_accumulator(self, name: str, accumulator: Accumulator[Any, Any]) -> None:
        """Register an accumulator in `open`; see `penstock.base.accumulators`.

        Raises:
            ValueError: if the operator already has an accumulator of that name.
            NotImplementedError: in an iteration, which has aggregators instead.

        Examples:
            >>> from penstock.common.accumulators import IntCounter
            >>> from penstock.datastream import StreamExecutionEnvironment
            >>> class Counting(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.words = IntCounter()
            ...         runtime_context.add_accumulator("words", self.words)
            ...     def map(self, value):
            ...         self.words.add(1)
            ...         return value
            >>> env = StreamExecutionEnvironment.get_execution_environment()
            >>> words = env.from_elements("tea", "milk").map(Counting())
            >>> env.execute("words").get_accumulator_result("words")
            2
        """
        if self._context.superstep is not None:
            raise UnsupportedError(
                f"accumulator {name!r}: functions of an iteration, and those that only an iteration reads, have no "
                "accumulators; register an aggregator with the iteration"
            )
        if name in self._context.accumulators:
            raise WrongValueError(f"operator {self._context.operator_name!r} already has an accumulator {name!r}")
        self._context.accumulators[name] = accumulator

    def get_accumulator(self, name: str) -> Accumulator[Any, Any] | None:
        """Return this subtask's accumulator of that name, or None."""
        return self._context.accumulators.get(name)

    # --- iterations --------------------------------------------------------------------------------------------------

    def get_superstep_number(self) -> int:
        """Return the number of the superstep, from 1.

        Raises:
            RuntimeError: outside of an iteration.
        """
        return self._superstep("get_superstep_number()").number

    def get_iteration_aggregator(self, name: str) -> Aggregator[Any]:
        """Return this subtask's copy of an iteration aggregator, empty at the start of the superstep.

        Raises:
            RuntimeError: outside of an iteration.
            KeyError: if the iteration has no aggregator of that name.
        """
        return self._superstep(f"get_iteration_aggregator({name!r})").aggregator(name)

    def get_previous_iteration_aggregate(self, name: str) -> Any:
        """Return an aggregator's value in the previous superstep, over all subtasks; None in the first superstep.

        Raises:
            RuntimeError: outside of an iteration.
            KeyError: if the iteration has no aggregator of that name.
        """
        return self._superstep(f"get_previous_iteration_aggregate({name!r})").previous(name)

    def _superstep(self, call: str) -> SuperstepContext:
        superstep = self._context.superstep
        if superstep is None or superstep.number == 0:
            raise WrongTimeError(
                f"{call}: operator {self._context.operator_name!r} is not part of an iteration; only functions between "
                "iterate() and close_with() have supersteps and their aggregators"
            )
        return superstep


class FunctionInitializationContext:
    """The context passed to `CheckpointedFunction.initialize_state`.

    Examples:
        >>> from penstock.datastream import CheckpointedFunction, MapFunction
        >>> from penstock.testing import harness_for
        >>> class Restored(MapFunction, CheckpointedFunction):
        ...     def initialize_state(self, context):
        ...         self.is_restored = context.is_restored()
        ...     def snapshot_state(self, context):
        ...         pass
        ...     def map(self, value):
        ...         return self.is_restored
        >>> with harness_for(Restored()) as harness:
        ...     harness.process("tea")
        ...     harness.values
        [False]
    """

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._store = OperatorStateStore(context.operator_state)

    def is_restored(self) -> bool:
        """Return whether the job began from a checkpoint or savepoint, which may hold no state of this function."""
        return self._context.operator_state.is_restored

    def get_restored_checkpoint_id(self) -> int | None:
        """Return the number of that checkpoint, or None."""
        return self._context.operator_state.restored_checkpoint_id

    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the store of operator states: lists, union lists and broadcast maps."""
        return self._store

    def get_keyed_state_store(self) -> KeyedStateStore:
        """Return the store of keyed states; look them up here, and use them while a key is current."""
        return KeyedStateStore(self._context)


class FunctionSnapshotContext:
    """The context passed to `CheckpointedFunction.snapshot_state`.

    Examples:
        >>> from penstock.datastream import CheckpointedFunction, MapFunction
        >>> from penstock.testing import harness_for
        >>> class Last(MapFunction, CheckpointedFunction):
        ...     def initialize_state(self, context):
        ...         self.last = None
        ...     def snapshot_state(self, context):
        ...         self.last = context.get_checkpoint_id()
        ...     def map(self, value):
        ...         return self.last
        >>> with harness_for(Last()) as harness:
        ...     snapshot = harness.snapshot(7)
        ...     harness.process("tea")
        ...     harness.values
        [7]
    """

    def __init__(self, checkpoint_id: int) -> None:
        self._checkpoint_id = checkpoint_id

    def get_checkpoint_id(self) -> int:
        """Return the checkpoint's number; it increases with each checkpoint and savepoint of a job."""
        return self._checkpoint_id


class CheckpointedFunction(ABC):
    """A user function with state of its subtask rather than of a key (D2, G10). Flink has these, PyFlink does not.

    Inherit from it in addition to any function class (a sink's writer has its own list state, see `SinkWriter`).

    **Restored state.** At the same parallelism, and after every failure, each subtask gets its own lists back. At
    another parallelism the items of all subtasks are redistributed, each to exactly one subtask: make an item the
    smallest unit that may move alone. A union list gives every subtask the items of all, at every restore. Each subtask
    gets one whole copy of a broadcast map: its own if the parallelism is the same. The order of items means nothing.

    **The end of input.** A subtask that has ended leaves its last state in every later checkpoint, for as long as other
    subtasks go on. After a recovery or a rescaling that state is redistributed like any other, and the subtask may run
    and end again. So remove data from the state at once when it is emitted on the way to the end (by timers that
    MAX_WATERMARK fires), or it is emitted twice. Keep the data in the state that the other subtasks still need.

    Examples:
        >>> from penstock.datastream import CheckpointedFunction, MapFunction
        >>> from penstock.datastream.state import ListStateDescriptor
        >>> from penstock.testing import harness_for
        >>> class Numbering(MapFunction, CheckpointedFunction):
        ...     def initialize_state(self, context):
        ...         store = context.get_operator_state_store()
        ...         self.state = store.get_list_state(ListStateDescriptor("count"))
        ...         self.count = sum(self.state.get())
        ...     def snapshot_state(self, context):
        ...         self.state.update([self.count])
        ...     def map(self, value):
        ...         self.count += 1
        ...         return self.count, value
        >>> with harness_for(Numbering()) as harness:
        ...     harness.process("tea")
        ...     snapshot = harness.snapshot(1)
        >>> restored = harness_for(Numbering())
        >>> restored.restore(snapshot)
        >>> with restored:
        ...     restored.process("milk")
        ...     restored.values
        [(2, 'milk')]
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Look up state, which holds the restored values; called once per attempt, before `open`."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Bring the state up to date before a checkpoint captures it. Nothing may be emitted; no key is current.

        It runs between two records, and the subtask waits for it. An error that it raises fails the task.
        """


#: Calls user code, and names the method in the errors that it raises.
Call = Callable[..., Any]


def initialize_functions(functions: Iterable[Any], context: OperatorContext, call: Call) -> None:
    """Call `initialize_state` of each `CheckpointedFunction`."""
    for function in functions:
        if isinstance(function, CheckpointedFunction):
            call(function.initialize_state, FunctionInitializationContext(context), what="initialize_state()")


def snapshot_functions(functions: Iterable[Any], checkpoint_id: int, call: Call) -> None:
    """Call `snapshot_state` of each `CheckpointedFunction`."""
    for function in functions:
        if isinstance(function, CheckpointedFunction):
            call(function.snapshot_state, FunctionSnapshotContext(checkpoint_id), what="snapshot_state()")


class CheckpointListener:
    """Receives notifications of completed and aborted checkpoints; inherit from it in addition to any function class.

    Flink has this interface, PyFlink does not.

    A function with methods of these names is notified even if it does not inherit this class. The thread that processes
    records calls the methods between two records. They must not emit anything, and no key is current. An error that
    they raise fails the task.

    **The guarantee.** In STREAMING every subtask is notified of each completed checkpoint, including the last one of a
    bounded job, and of the savepoint that stops a job, but not of other savepoints. A subtask that fails or is
    cancelled may miss a notification, so treat each one as covering all checkpoints up to its number. In MICRO_BATCH
    each epoch is a checkpoint. Functions are notified when the next epoch begins, and again if that epoch is repeated
    after a failure. The last epoch has no notification. BATCH has no checkpoints.

    Examples:
        >>> from penstock.datastream import CheckpointListener, MapFunction
        >>> from penstock.testing import harness_for
        >>> class Confirming(MapFunction, CheckpointListener):
        ...     completed = 0
        ...     def map(self, value):
        ...         return value, self.completed
        ...     def notify_checkpoint_complete(self, checkpoint_id):
        ...         self.completed = checkpoint_id
        >>> with harness_for(Confirming()) as harness:
        ...     snapshot = harness.snapshot(1)
        ...     harness.notify_complete(1)
        ...     harness.process("tea")
        ...     harness.values
        [('tea', 1)]
    """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Handle a completed checkpoint: a recovery from now on begins from it or from a later one."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Handle an aborted checkpoint: the next one includes its changes."""


def notify_complete(functions: Iterable[Any], checkpoint_id: int, call: Call) -> None:
    """Notify the functions that listen of a completed checkpoint."""
    _notify(functions, "notify_checkpoint_complete", checkpoint_id, call)


def notify_aborted(functions: Iterable[Any], checkpoint_id: int, call: Call) -> None:
    """Notify the functions that listen of an aborted checkpoint."""
    _notify(functions, "notify_checkpoint_aborted", checkpoint_id, call)


def is_listener(function: Any) -> bool:
    """Return whether a function listens, even if only by the name of a method."""
    return hasattr(function, "notify_checkpoint_complete") or hasattr(function, "notify_checkpoint_aborted")


def _notify(functions: Iterable[Any], name: str, checkpoint_id: int, call: Call) -> None:
    for function in functions:
        listens = getattr(function, name, None)
        if listens is not None:
            call(listens, checkpoint_id, what=f"{name}()")
