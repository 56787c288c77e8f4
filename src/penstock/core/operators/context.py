"""The context that a task passes to its operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.base.accumulators import Accumulator
from penstock.base.histograms import SlidingHistogram
from penstock.base.metrics import MetricRegistry
from penstock.core.ports import Clock, Coroutines
from penstock.core.supersteps import SuperstepContext
from penstock.state.backend import KeyedStateBackend
from penstock.state.key_columns import ColumnStates
from penstock.state.latency import StateLatency
from penstock.state.operator_state import OperatorStateBackend
from penstock.state.states import Sampled

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
    #: Whether the operator sees its keys one after another, each to its end (`core.batch`).
    is_batch: bool = False
    job_parameters: Mapping[str, str] = field(default_factory=dict)
    accumulators: dict[str, Accumulator[Any, Any]] = field(default_factory=dict)
    #: how many timers a key may set after the end of its input, see `core.operators.timers`
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
    user_states: dict[str, Sampled] = field(default_factory=dict)
    #: measures the latency of state accesses; None if that is not enabled
    state_latency: StateLatency | None = None
    #: ages (ms) of latency markers, by the name of their histogram (`core.task.latency_markers`)
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
