"""Scenario of one seed: a job, the sizes of its cluster, and its faults.

`Elasticity` describes changes of parallelism in a history: slots that appear and disappear, and a person's requests
(E3).

`Leaving` describes how workers leave: they are announced as leaving and killed a while later (E2).

**Latency markers** come from the sources of half of the jobs, where `with_latency_markers` requests them. Markers
change the steps of a history, so a seed that once found a bug keeps its history without them.

`Stillness` describes how workers stand still: their processes live and send heartbeats, but do nothing else (E2).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.metrics import LATENCY_INTERVAL_MS
from penstock.drivers.simulation.program_changes import Changes
from penstock.drivers.simulation.topology import Topology, TopologyMaker


@dataclass(frozen=True)
class Elasticity:
    """How often, and how, the parallelism of a history's jobs changes; drawn per seed by its own generator."""

    seed: str = ""
    is_adaptive: bool = False
    asks_max: int = 0
    changes_of_slots_max: int = 0
    #: how likely either change is after an action, and after one that advances a checkpoint or an end
    after_action: float = 0.0
    after_protocol: float = 0.0

    @classmethod
    def of(cls, world: str) -> Elasticity:
        """Draw the elasticity of a seed's history; most have none."""
        own = random.Random(f"rescaling of {world}")
        if own.random() >= 0.3:
            return cls()
        is_adaptive = own.random() < 0.6
        return cls(
            f"slots of {world}",
            is_adaptive,
            own.choice((1, 2, 4)) if not is_adaptive else own.choice((0, 1, 3)),
            own.choice((1, 3, 6)) if is_adaptive else 0,
            own.choice((0.0, 0.001, 0.004)),
            own.choice((0.01, 0.04)),
        )

    def configure(self, configuration: Configuration) -> None:
        """Set the options of the adaptive scheduler, with times as short as all others in a history."""
        if not self.is_adaptive:
            return
        own = random.Random(f"options of {self.seed}")
        write = configuration.write
        write(options.SCHEDULER, "adaptive")
        write(options.SUBMISSION_STABILIZATION_MS, own.choice((0, 30, 300)))
        write(options.EXECUTING_COOLDOWN_MS, own.choice((0, 0, 100)))
        write(options.EXECUTING_STABILIZATION_MS, own.choice((0, 50)))
        write(options.RESCALE_MAX_DELAY_MS, own.choice((50, 500, 20_000)))
        if own.random() < 0.3:
            write(options.SCHEDULER_MODE, "reactive")


@dataclass(frozen=True)
class Leaving:
    """How often workers are announced, and how long before their end; drawn per seed by its own generator."""

    seed: str = ""
    #: the maximum number of times, and how likely it is after an action, and after one that advances a checkpoint
    times_max: int = 0
    after_action: float = 0.0
    after_protocol: float = 0.0
    #: how long (ms) they keep running
    grace_ms_min: int = 0
    grace_ms_max: int = 0

    @classmethod
    def of(cls, world: str) -> Leaving:
        """Draw the departures in a seed's history; most have none."""
        own = random.Random(f"leaving workers of {world}")
        if own.random() >= 0.2:
            return cls()
        return cls(
            f"when workers of {world} leave",
            own.choice((1, 2, 4)),
            own.choice((0.0, 0.002, 0.005)),
            own.choice((0.01, 0.04)),
            0,
            own.choice((20, 300, 3_000, 60_000)),
        )


_asked = ContextVar("asked", default=False)


@contextmanager
def with_latency_markers(enabled: bool = True) -> Iterator[None]:
    """Make half of the jobs begun within the block send latency markers."""
    token = _asked.set(enabled)
    try:
        yield
    finally:
        _asked.reset(token)


def latency_interval_ms(world: str) -> int:
    """Return how often the sources of a world's jobs send a marker (ms); 0 for never."""
    own = random.Random(f"latency markers of {world}")
    return own.choice((1, 5, 50)) if _asked.get() and own.random() < 0.5 else 0


@dataclass(frozen=True)
class Stillness:
    """How often and how long workers stand still, drawn per seed by a separate random generator."""

    seed: str = ""
    #: the most times that workers stand still, and the probability after an action
    times_max: int = 0
    after_action: float = 0.0
    threshold_ms: int = 1
    #: None if the job does not replace workers for it
    replace_after_ms: int | None = None

    @classmethod
    def of(cls, world: str) -> Stillness:
        """Draw the stillness of a seed's history; in most histories no worker stands still."""
        own = random.Random(f"still workers of {world}")
        if own.random() >= 0.15:
            return cls()
        return cls(
            f"when workers of {world} stand still",
            own.choice((1, 2, 4)),
            own.choice((0.002, 0.01)),
            own.choice((1_000, 3_000)),
            own.choice((None, 3_000, 6_000)),
        )

    def configure(self, configuration: Configuration) -> None:
        """Set the options for the job's reaction."""
        if not self.times_max:
            return
        configuration.write(options.SLOW_WORKERS_THRESHOLD_MS, self.threshold_ms)
        if self.replace_after_ms is not None:
            configuration.write(options.SLOW_WORKERS_REPLACE_AFTER_MS, self.replace_after_ms)


HEARTBEAT_INTERVAL_MS = 1_000
#: The share of histories whose jobs use RocksDB, which is slow: with and without possible successors.
ROCKSDB_SHARES = 1 / 2, 1 / 16
#: Aligned, at least once, unaligned, and aligned until a timeout.
MODES = ("aligned", "at-least-once", "unaligned", "timed")


@dataclass(frozen=True)
class FaultRates:
    """How likely each fault is where it can happen. All are drawn per seed; many are zero in most seeds."""

    kills_max: int = 0
    #: whether workers are spared until the first task has reached the end of its data
    spares_until_end: bool = False
    kill_after_action: float = 0.0
    #: after actions that advance a checkpoint or an end, where more can break
    kill_after_protocol: float = 0.0
    kill_within_call: float = 0.0
    silent_kill: float = 0.0
    zombie: float = 0.0
    master_kills_max: int = 0
    master_kill_after_action: float = 0.0
    master_kill_after_protocol: float = 0.0
    master_kill_within_call: float = 0.0
    dropped_connections_max: int = 0
    dropped_connection: float = 0.0
    doubled_message: float = 0.0
    user_errors_max: int = 0
    user_error: float = 0.0
    storage_errors_max: int = 0
    storage_error: float = 0.0
    #: that the store takes very long to answer the job master
    late_store: float = 0.0
    #: that a job master that appears dead keeps running, with its workers, alongside its successor
    split_brain: float = 0.0
    #: that the clocks of all hosts are set forwards
    clock_jump: float = 0.0
    #: that all hosts lose power
    power_cut: float = 0.0
    slow_background: float = 0.0
    slow_channel: float = 0.0
    slow_executor: float = 0.0


@dataclass(frozen=True)
class Wishes:
    """A person's consecutive requests to the job, at random moments: names of `person.KINDS`."""

    kinds: tuple[str, ...] = ()
    after_action: float = 0.0
    after_protocol: float = 0.0
    #: how likely the next request follows at once
    at_once: float = 0.0
    #: whether a request that was not granted is repeated
    insists: bool = True
    #: whether savepoints are moved before a job begins from them, and whether it may then delete them
    moves: bool = False
    claims: bool = False


@dataclass(frozen=True)
class Scenario:
    """The parameters of one seed's history, before its random choices."""

    topology: Topology
    #: one of MODES
    mode: str
    configuration: Configuration
    rates: FaultRates
    inline_bytes_max: int
    #: how likely time passes in a step although there are other actions, and by how much at most (ms)
    tick: float
    tick_ms_max: int
    reports_metrics: bool
    wishes: Wishes = Wishes()
    changes: Changes = field(default_factory=Changes)
    elasticity: Elasticity = field(default_factory=Elasticity)
    stillness: Stillness = field(default_factory=Stillness)
    leaving: Leaving = field(default_factory=Leaving)


def draw_scenario(chance: random.Random, world: str, mode: str | None = None) -> Scenario:
    """Draw a scenario, determined by the state of `chance`. `mode` overrides the drawn one."""
    drawn = chance.choice(MODES)
    mode = mode or drawn
    # These have their own draws, so that jobs not affected by them are the same with and without them.
    ends = random.Random(f"ends of {world}")
    has_ends, has_wishes = ends.random() < 0.5, ends.random() < 0.5
    topology = TopologyMaker(chance, world, mode != "at-least-once", ends if has_ends else None).make()
    scenario = Scenario(
        topology,
        mode,
        _configuration(chance, mode),
        replace(
            _rates(chance),
            late_store=_late_store(world),
            split_brain=_split_brain(world),
            clock_jump=_clock_jump(world),
            power_cut=power_cut(world),
        ),
        chance.choice((0, 0, 600, 1 << 20)),
        chance.choice((0.01, 0.03, 0.1)),
        chance.choice((3, 10, 30)),
        chance.random() < 0.1,
        _wishes(ends) if has_wishes else Wishes(),
        _changes(random.Random(f"other jobs of {world}"), has_wishes),
        Elasticity.of(world),
        Stillness.of(world),
        Leaving.of(world),
    )
    if "abandon" in scenario.wishes.kinds:
        scenario.configuration.write(options.CHECKPOINT_RETENTION, "RETAIN_ON_CANCELLATION")
    scenario.configuration.write(LATENCY_INTERVAL_MS, latency_interval_ms(world))
    if has_ends and ends.random() < 0.4:
        # Workers are only killed once part of the job has ended.
        kills_max = max(2, scenario.rates.kills_max)
        rates = replace(scenario.rates, spares_until_end=True, kills_max=kills_max, kill_after_protocol=0.04)
        return replace(scenario, rates=rates)
    return scenario


def fault_free(scenario: Scenario) -> Scenario:
    """Return the same scenario without faults."""
    return replace(scenario, rates=FaultRates(), elasticity=Elasticity(), stillness=Stillness(), leaving=Leaving())


def _configuration(chance: random.Random, mode: str) -> Configuration:
    write = Configuration().write
    write(options.CHECKPOINTING_INTERVAL_MS, chance.choice((5, 20, 60)))
    concurrent = chance.choice((1, 1, 2, 3))
    write(options.CHECKPOINTING_MAX_CONCURRENT, 1 if mode in ("unaligned", "timed") else concurrent)
    write(options.CHECKPOINTING_MIN_PAUSE_MS, chance.choice((0, 0, 10)))
    write(options.CHECKPOINTING_TIMEOUT_MS, chance.choice((300, 2_000, 20_000)))
    write(options.CHECKPOINTING_TOLERABLE_FAILURES, chance.choice((0, 2, 1_000)))
    write(options.CHECKPOINTING_NUM_RETAINED, chance.choice((1, 1, 2, 3)))
    write_mode(write(options.RESTART_STRATEGY, "fixed-delay"), mode, chance.choice((1, 4, 15)))
    held_back_bytes_max = chance.choice((None, None, None, 40, 400))
    if held_back_bytes_max is not None:
        write(options.ALIGNMENT_HELD_BACK_BYTES_MAX, held_back_bytes_max)
    write(options.FIXED_DELAY_ATTEMPTS, 1_000_000)
    write(options.FIXED_DELAY_MS, chance.choice((0, 10, 100)))
    write(options.BUFFERS_PER_CHANNEL, chance.randint(1, 3))
    write(options.NETWORK_BUFFER_RECORDS, chance.choice((1, 2, 4, 8)))
    write(options.SOURCE_BATCH_RECORDS, chance.randint(1, 5))
    write(options.BUFFER_TIMEOUT_MS, chance.choice((0, 5, 100)))
    write(options.OPERATOR_CHAINING_ENABLED, chance.random() < 0.7)
    write(options.MAX_PARALLELISM, chance.choice((4, 7, 128)))
    write(options.HEARTBEAT_TIMEOUT_MS, 5 * HEARTBEAT_INTERVAL_MS)
    return write(options.HEARTBEAT_INTERVAL_MS, HEARTBEAT_INTERVAL_MS)


def write_mode(configuration: Configuration, mode: str, timeout_ms: int) -> Configuration:
    """Write the options of one of MODES."""
    if mode == "at-least-once":
        return configuration.write(options.CHECKPOINTING_MODE, "AT_LEAST_ONCE")
    if mode == "aligned":
        return configuration
    configuration.write(options.UNALIGNED_ENABLED, True)
    return configuration.write(options.ALIGNED_TIMEOUT_MS, timeout_ms if mode == "timed" else 0)


def _wishes(ends: random.Random) -> Wishes:
    kinds = ("savepoint", "savepoint", "cancel", "suspend", "suspend", "suspend", "drain", "abandon", "abandon")
    return Wishes(
        tuple(ends.choice(kinds) for _ in range(ends.randint(1, 5))),
        ends.choice((0.0, 0.002, 0.01)),
        ends.choice((0.03, 0.1)),
        ends.choice((0.0, 0.3)),
        ends.random() < 0.6,
        ends.random() < 0.3,
        ends.random() < 0.3,
    )


def _changes(chance: random.Random, may_follow: bool) -> Changes:
    return Changes(
        chance.choice((0.0, 0.5, 1.0, 1.0)),
        chance.choice((0.0, 0.5, 0.9)),
        chance.choice((0.0, 0.3)),
        chance.choice((0.0, 0.4)),
        chance.random() < ROCKSDB_SHARES[0 if may_follow else 1],
        chance.choice((0.0, 0.0, 0.2)),
    )


def _late_store(world: str) -> float:
    own = random.Random(f"late store of {world}")
    return own.choice((0.01, 0.05)) if own.random() < 0.25 else 0.0


def _split_brain(world: str) -> float:
    own = random.Random(f"split brain of {world}")
    return own.choice((0.5, 1.0)) if own.random() < 0.3 else 0.0


def _clock_jump(world: str) -> float:
    own = random.Random(f"set clocks of {world}")
    return 0.003 if own.random() < 0.2 else 0.0


def power_cut(world: str) -> float:
    """Draw how likely the power fails after an action."""
    own = random.Random(f"power of {world}")
    return own.choice((0.0003, 0.001)) if own.random() < 0.2 else 0.0


def _rates(chance: random.Random) -> FaultRates:
    def some(share: float, value: float) -> float:
        return value if chance.random() < share else 0.0

    kills_max = chance.choice((0, 1, 1, 2, 2, 3, 4))
    return FaultRates(
        kills_max=kills_max,
        spares_until_end=chance.random() < 0.35,
        kill_after_action=some(0.6, 0.002),
        kill_after_protocol=some(0.6, 0.04),
        kill_within_call=some(0.4, 0.002),
        silent_kill=some(0.3, 0.3),
        zombie=some(0.3, 0.5),
        master_kills_max=chance.choice((0, 0, 0, 1, 2)),
        master_kill_after_action=some(0.5, 0.001),
        master_kill_after_protocol=some(0.5, 0.03),
        master_kill_within_call=some(0.5, 0.01),
        dropped_connections_max=chance.choice((0, 0, 1, 2)),
        dropped_connection=chance.choice((0.001, 0.005)),
        doubled_message=some(0.3, 0.1),
        user_errors_max=chance.choice((0, 0, 1, 2)),
        user_error=chance.choice((0.003, 0.02)),
        storage_errors_max=chance.choice((0, 0, 2, 4)),
        storage_error=chance.choice((0.02, 0.1)),
        slow_background=some(0.4, 0.3),
        slow_channel=some(0.3, 0.2),
        slow_executor=some(0.3, 0.3),
    )
