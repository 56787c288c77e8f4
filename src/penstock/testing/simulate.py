"""Runs a user's whole DataStream program under seeded histories of faults, and compares its output.

The program builds its job in an environment, as in production, and the same code turns it into a job graph. The job
master, tasks, checkpoints and state backends are the runtime's own. Only the driver is the simulation's: one thread
with virtual time and a seeded scheduler, which kills workers and job masters, slows and repeats messages, fails
storage and sets clocks forwards. The streams that the program returns are captured by two-phase sinks, so that each
record counts once if its transaction commits.

First the program runs without faults, twice. Outputs that differ mean that it is not deterministic, and no further
history could prove anything. Then each history draws its faults from its seed. One that fails is shrunk: kinds of
faults are left out, and kills are made fewer, while it still fails. The story is that of the shrunk one.

>>> from penstock.testing.simulate import simulate
>>> simulate(lambda env: env.from_collection([1, 2, 3]).map(lambda number: number * 2), histories=5).histories
5
"""

from __future__ import annotations

import random
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Final

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.drivers.simulation.connectors import SimulatedSink
from penstock.drivers.simulation.invariants import Invariants
from penstock.drivers.simulation.jobs import Surroundings
from penstock.drivers.simulation.program_changes import Changes
from penstock.drivers.simulation.scenario import (
    Elasticity,
    FaultRates,
    Scenario,
    Wishes,
    draw_scenario,
    fault_free,
)
from penstock.drivers.simulation.simulation import Simulation
from penstock.drivers.simulation.topology import Stage, Topology
from penstock.runtime.graph import JobGraph

#: Builds a job and returns the stream to capture, or several by name.
Program = Callable[[StreamExecutionEnvironment], "DataStream | Mapping[str, DataStream] | None"]
#: The records of each captured stream, by its name.
Output = Mapping[str, list[Any]]
MODES: Final = ("aligned", "unaligned", "timed")
STORY_LINES_MAX: Final = 15
#: The name of the stream of a program that returns a single one.
ONLY: Final = "output"
#: Lines of a trace that a story repeats, and how.
_EVENTS: Final = (
    (re.compile(r"^(worker-\d+) dies$"), r"TaskManager \1 is killed"),
    (re.compile(r"^fault: (.*)$"), r"fault: \1"),
    (
        re.compile(r"^(the job master .*|a client asks: rescale .*|the power is cut|clocks? .*|.* stands still .*)$"),
        r"\1",
    ),
    (re.compile(r"^there are (\d+) slots$"), r"the cluster has \1 slots now"),
)


_effects: Final[dict[str, list[Any]]] = {}


def effects(name: str) -> list[Any]:
    """Return the list of a program's effects outside of Penstock, under a name, in the current history.

    It stands for an external system: a sink of the user's own appends to it, and no crash takes that back. `simulate`
    compares it like the captured streams, so effects that repeat or are lost show.

    >>> effects("mails sent").append("to ann")
    >>> effects("mails sent")
    ['to ann']
    """
    return _effects.setdefault(name, [])


@dataclass(frozen=True)
class Faults:
    """The kinds of faults in a simulation, all by default.

    >>> Faults(clock_jumps=False).clock_jumps
    False
    """

    #: workers and job masters are killed
    crashes: bool = True
    #: the job changes its parallelism while it runs
    rescales: bool = True
    #: messages and tasks are slow
    slowness: bool = True
    #: control messages arrive twice
    duplicates: bool = True
    #: all clocks are set forwards
    clock_jumps: bool = True
    #: storage fails, so that checkpoints are aborted
    storage_errors: bool = True

    def restrict(self, rates: FaultRates) -> FaultRates:
        """Return the rates without the kinds that are off."""
        if not self.crashes:
            rates = replace(rates, kills_max=0, master_kills_max=0, split_brain=0.0, power_cut=0.0)
            rates = replace(rates, dropped_connections_max=0)
        if not self.slowness:
            rates = replace(rates, slow_background=0.0, slow_channel=0.0, slow_executor=0.0, late_store=0.0)
        if not self.duplicates:
            rates = replace(rates, doubled_message=0.0)
        if not self.clock_jumps:
            rates = replace(rates, clock_jump=0.0)
        return rates if self.storage_errors else replace(rates, storage_errors_max=0)


@dataclass(frozen=True)
class SimulationResult:
    """The result of a simulation without a failure."""

    seed: int
    histories: int
    output: Output
    #: how often each fault happened
    faults: Counter[str]


class SimulationFailure(AssertionError):
    """A history broke a promise. Its text has at most `STORY_LINES_MAX` lines; `seed` reproduces it."""

    def __init__(self, seed: int, story: list[str]) -> None:
        super().__init__("\n".join(story))
        self.seed = seed
        self.story = story


@dataclass
class _ProgramTopology(Topology):
    """A user's program in the place of drawn stages. Its parallelism is that of the environment."""

    program: Program | None = None

    def job_graph(self, configuration: Configuration) -> JobGraph:
        """Build the program again, as a restart of the driver does."""
        assert self.program is not None
        environment = StreamExecutionEnvironment.get_execution_environment(configuration)
        environment.set_parallelism(self.stages[-1].parallelism)
        streams = self.program(environment)
        if isinstance(streams, DataStream):
            streams = {ONLY: streams}
        if not streams:
            raise ConfigurationError(
                f"the program returned {type(streams).__name__}: let it return the stream to capture, or a dictionary "
                "of streams by name, and leave out its own execute()"
            )
        for name, stream in streams.items():
            stream.sink_to(SimulatedSink(self.world, name)).uid(f"captured-{name}")
        return environment.job_graph(self.world)


class _Invariants(Invariants):
    """The runtime's own invariants. The output is compared by `simulate`."""

    def check_output(self, may_lack: bool = False) -> None:
        """Leave the comparison to `simulate`."""


class _ProgramSimulation(Simulation):
    invariants_type: ClassVar[type[Invariants]] = _Invariants


@dataclass
class _Run:
    output: dict[str, list[Any]]
    violations: list[str]
    faults: Counter[str]
    log: list[str] = field(default_factory=list)


def simulate(
    program: Program,
    *,
    histories: int = 100,
    seed: int | None = None,
    faults: Faults | None = None,
    invariant: Callable[[Output], object] | None = None,
    parallelism: int = 2,
    uses_rocksdb: bool = False,
) -> SimulationResult:
    """Run a program under histories of faults, and check its output, in any order, against a run without faults.

    Args:
        program: builds the job and returns the stream to capture, or a dictionary of streams by name. It runs once
            for each history, so it has to build the same job each time. It does not call `execute`.
        histories: the number of histories.
        seed: of the first history; None for a fresh one. The others follow it.
        faults: the kinds of faults; None for all.
        invariant: called with the output of each history; a result of False, or an AssertionError, is a failure.
        parallelism: the default parallelism of the job.
        uses_rocksdb: whether most histories keep their keyed state in RocksDB, which is slower, and not on the heap.

    Raises:
        SimulationFailure: if a history fails, or the program is not deterministic.
        ConfigurationError: if the program returns no streams.

    Examples:
        >>> simulate(lambda env: env.from_collection(["tea"]).map(str.upper), histories=2).output
        {'output': ['TEA']}
    """
    first = secrets.randbelow(2**31) if seed is None else seed
    kinds = faults or Faults()
    scenario = fault_free(_draw(first, program, kinds, parallelism, uses_rocksdb))
    expected = _run(first, scenario)
    again = _run(first, scenario)
    difference = _difference(expected.output, again.output)
    reason = _judge(expected, expected, invariant) if difference is None else difference
    if reason is not None:
        is_broken = difference is None
        what = "without any fault" if is_broken else "the program is not deterministic: two runs of one seed differ"
        raise SimulationFailure(first, _tell(first, [], Counter(), f"{what}: {reason}"))
    seen = Counter[str]()
    for number in range(first, first + histories):
        scenario = _draw(number, program, kinds, parallelism, uses_rocksdb)
        run = _run(number, scenario)
        seen += run.faults
        if _judge(run, expected, invariant) is not None:
            scenario = _shrink(scenario, lambda s: _judge(_run(number, s), expected, invariant) is not None)  # noqa: B023
            run = _run(number, scenario, is_traced=True)
            reason = _judge(run, expected, invariant)
            assert reason is not None, "a shrunk history fails, like each that it was shrunk from"
            raise SimulationFailure(number, _tell(number, run.log, run.faults, reason))
    return SimulationResult(first, histories, expected.output, seen)


def _draw(seed: int, program: Program, kinds: Faults, parallelism: int, uses_rocksdb: bool) -> Scenario:
    """Draw the scenario of a seed, with the program in the place of a drawn job."""
    chance = random.Random(f"simulate {seed}")
    scenario = draw_scenario(chance, f"simulate-{seed}", chance.choice(MODES))
    stages = [Stage("sink", parallelism, (), uid="program")]
    topology = _ProgramTopology(f"simulate-{seed}", 0, stages, may_rescale=kinds.rescales, program=program)
    rates = kinds.restrict(replace(scenario.rates, user_errors_max=0))
    changes = Changes(uses_rocksdb=uses_rocksdb)
    elasticity = scenario.elasticity if kinds.rescales else Elasticity()
    scenario = replace(fault_free(scenario), topology=topology, rates=rates, wishes=Wishes(), changes=changes)
    return replace(scenario, elasticity=elasticity)


def _run(seed: int, scenario: Scenario, is_traced: bool = False) -> _Run:
    world = scenario.topology.world
    configuration = Configuration()
    configuration.add_all(scenario.configuration)
    scenario = replace(scenario, configuration=configuration)
    _effects.clear()
    around = Surroundings.made(seed, world, scenario, random.Random(world), is_traced)
    history = _ProgramSimulation(seed, around=around).run()
    output = {name: list(records) for name, records in around.outside.committed.items()}
    output |= {name: list(done) for name, done in _effects.items()}
    seen = history.faults + history.events
    seen["job restarted"] += history.restarts
    return _Run(output, history.violations, +seen, history.log)


def _judge(run: _Run, expected: _Run, invariant: Callable[[Output], object] | None) -> str | None:
    """Return why a run fails, in one line, or None."""
    if run.violations:
        return run.violations[0].strip().replace("\n", " ")[:300]
    if (difference := _difference(expected.output, run.output)) is not None:
        return difference
    try:
        is_kept = invariant is None or invariant(run.output) is not False
    except AssertionError as broken:
        return f"the invariant is broken: {broken}".replace("\n", " ")
    return None if is_kept else "the invariant returned False"


def _difference(expected: Output, actual: Output) -> str | None:
    """Return the first difference between two outputs whose records may come in any order."""
    for name in sorted({*expected, *actual}):
        before, after = (Counter(map(repr, output.get(name, []))) for output in (expected, actual))
        for record in sorted({*before, *after}):
            if before[record] != after[record]:
                return f"{name}: {record} came {after[record]} times, and {before[record]} times without faults"
    return None


def _shrink(scenario: Scenario, fails: Callable[[Scenario], bool]) -> Scenario:
    """Leave out faults while the history still fails."""
    still = replace(scenario, elasticity=Elasticity())
    if scenario.elasticity != still.elasticity and fails(still):
        scenario = still
    for smaller in _smaller(scenario.rates):
        candidate = replace(scenario, rates=replace(scenario.rates, **smaller))
        if fails(candidate):
            scenario = candidate
    return scenario


def _smaller(rates: FaultRates) -> Iterator[dict[str, Any]]:
    for rate in fields(rates):
        value = getattr(rates, rate.name)
        if value:
            yield {rate.name: type(value)(0)}
    for name in ("kills_max", "master_kills_max", "storage_errors_max", "dropped_connections_max"):
        if getattr(rates, name) > 1:
            yield {name: 1}


def _tell(seed: int, log: list[str], faults: Counter[str], reason: str) -> list[str]:
    """Return the story of a history: its faults in order, the first difference, and how to repeat it."""
    events = list[str]()
    for line in log:
        _, separator, text = line.partition(" ms  ")
        matches = (pattern.sub(words, text) for pattern, words in _EVENTS if pattern.match(text))
        if separator and (event := next(matches, None)) is not None:
            events.append(f"  {line.split()[1]:>6} ms: {event}")
    if log and not events:
        kinds = ", ".join(f"{kind} ({count} times)" for kind, count in sorted(faults.items()) if count)
        why = "no fault: only its settings, and the order and the times in which records arrive, differ"
        events.append(f"  no crash, but {kinds}" if kinds else f"  {why}")
    room = STORY_LINES_MAX - 4
    if len(events) > room:
        events[room:] = [f"  ... and {len(events) - room} more events"]
    return [
        f"seed {seed} fails:",
        *events,
        reason,
        f"repeat it: simulate(program, histories=1, seed={seed}), other arguments alike",
    ]
