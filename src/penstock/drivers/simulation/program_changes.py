"""Differences between consecutive jobs of a history: parallelism, backend, chaining, operators (H4).

Operators keep their uids. Only changes with a known correct output are made. An operator that alters records is placed
where records are emitted directly after being read, so that it is known which job altered them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from penstock.drivers.simulation.topology import ADDED, STATELESS, Stage, Topology
from penstock.runtime.operators.calls import RECORDS_STATE
from penstock.storage.metadata import CHANNEL_MODE, CheckpointMetadata, parse_channel

HASHMAP, ROCKSDB = "hashmap", "rocksdb"
PARALLELISMS = (1, 2, 3, 4)
MISFITS = ("unclaimed", "max parallelism", "backend")
#: Stages that emit a record's results at once.
IMMEDIATE = ("source", "labels", "count", "reduce", "tally", "pass", *STATELESS)
#: Counts that a changed number or key would alter.
COUNTS = ("count", "reduce", "tally")


@dataclass(frozen=True)
class Changes:
    """How likely the next job is to differ, for each kind of change. All are drawn per seed."""

    parallelism: float = 0.0
    graph: float = 0.0
    order: float = 0.0
    chaining: float = 0.0
    #: whether jobs may keep their state in RocksDB
    uses_rocksdb: bool = False
    #: how likely the first attempt must be refused: it may not drop state, has another max parallelism, or uses a
    #: backend that cannot read the state
    misfit: float = 0.0
    #: whether a removed operator may come back, possibly at another position
    returns: bool = True


@dataclass(frozen=True)
class Program:
    """A job as its user wrote it."""

    topology: Topology
    backend: str = HASHMAP
    #: None: as in the scenario
    chaining: bool | None = None
    ignores_unclaimed: bool = True
    max_parallelism: int | None = None

    @property
    def shape(self) -> dict[str, int]:
        """The parallelism of each operator."""
        return {stage.uid: stage.parallelism for stage in self.topology.stages}

    @property
    def operators(self) -> set[str]:
        """All uids."""
        return {stage.uid for stage in self.topology.stages}


def records_in_flight(metadata: CheckpointMetadata) -> set[tuple[str, int]]:
    """Return where records were in flight: ids of the operators whose checkpointed state holds them, and edges."""
    return {
        (operator.operator_id, parse_channel(name).edge)
        for operator in metadata.operators
        for subtask in operator.subtasks.values()
        for name, handles in subtask.operator.items()
        if any(handle.mode == CHANNEL_MODE for handle in handles)
    }


def holds_calls(metadata: CheckpointMetadata) -> bool:
    """Return whether asynchronous functions had unfinished calls, which have to be repeated."""
    return any(
        handle.items > 0
        for operator in metadata.operators
        for subtask in operator.subtasks.values()
        for handle in subtask.operator.get(RECORDS_STATE, ())
    )


def holds_native(metadata: CheckpointMetadata) -> bool:
    """Return whether keyed state is in a backend's native files, which no other backend can read."""
    return any(subtask.native for operator in metadata.operators for subtask in operator.subtasks.values())


class ChangeMaker:
    """Draws the next program."""

    def __init__(self, chance: random.Random, changes: Changes, max_parallelism: int, is_exactly_once: bool) -> None:
        self._chance = chance
        self._changes = changes
        self._max_parallelism = max_parallelism
        self._is_exactly_once = is_exactly_once
        #: the operators of all programs so far
        self._known: set[str] = set()
        #: which of them were upstream of which others
        self._above: set[tuple[str, str]] = set()

    def first(self, topology: Topology) -> Program:
        """Return the first program of a history."""
        return Program(topology, self._backend(None))

    def same(self, program: Program) -> Program:
        """Return the program unchanged, ignoring unclaimed state: all state to restore comes from it."""
        return replace(program, ignores_unclaimed=True)

    def next(self, program: Program, metadata: CheckpointMetadata | None) -> Program:
        """Return a compatible program; occasionally one that does not fit the state or must not change in this way."""
        draw, changes = self._chance.random, self._changes
        self._known |= program.operators
        removed = set[str]() if changes.returns else self._known - program.operators
        draft = _Draft(program.topology, self._chance, self._is_exactly_once, removed, self._above)
        if draw() < changes.graph:
            draft.change(may_alter=metadata is None or not records_in_flight(metadata))
        if program.topology.may_rescale and draw() < changes.parallelism:
            draft.rescale()
        topology = draft.topology(is_shuffled=draw() < changes.order)
        chaining = draw() < 0.6 if draw() < changes.chaining else program.chaining
        misfit = self._chance.choice(MISFITS) if draw() < changes.misfit else None
        return Program(
            topology,
            HASHMAP if misfit == "backend" else self._backend(metadata),
            chaining,
            misfit != "unclaimed",
            (program.max_parallelism or self._max_parallelism) + 1
            if misfit == "max parallelism"
            else program.max_parallelism,
        )

    def _backend(self, metadata: CheckpointMetadata | None) -> str:
        if not self._changes.uses_rocksdb:
            return HASHMAP
        drawn = self._chance.choice((HASHMAP, ROCKSDB, ROCKSDB))
        return ROCKSDB if metadata is not None and holds_native(metadata) else drawn


class _Draft:
    """A topology under change: stages by uid, each with the uids of its inputs."""

    def __init__(
        self, topology: Topology, chance: random.Random, may_map: bool, removed: set[str], above: set[tuple[str, str]]
    ) -> None:
        self._topology = topology
        #: operators that must not come back
        self._gone = removed
        #: pairs of operators where one was upstream of the other in any program so far: returning ones keep that order
        self._above = above
        # A repeated record with another key may be late for a window of that key, which has fired without it.
        self._may_map = may_map
        self._chance = chance
        stages = topology.stages
        # From here on the kind of operator must not depend on the parallelism.
        self._stages = {s.uid: replace(s, two_inputs=s.has_two_inputs) for s in stages}
        self._inputs = {s.uid: [(stages[i].uid, name) for i, name in s.inputs] for s in stages}
        self._note_places()

    # --- operators -------------------------------------------------------------------------------------------------

    def change(self, may_alter: bool) -> None:
        """Add or remove one or two operators; `may_alter`: include changes that affect the output."""
        for _ in range(self._chance.choice((1, 1, 2))):
            removable = self._removable(may_alter)
            if removable and self._chance.random() < 0.5:
                self._remove(self._chance.choice(removable))
            else:
                self._add(may_alter)

    def _removable(self, may_alter: bool) -> list[str]:
        kinds = {"pass", *(("map", "tally", "labels") if may_alter else ())}
        return [
            uid
            for uid, stage in self._stages.items()
            if stage.kind in kinds and (stage.kind == "labels" or uid.startswith(tuple(f"{k}-" for k in ADDED)))
        ]

    def _remove(self, uid: str) -> None:
        (upstream, before), *_ = self._inputs.pop(uid)
        del self._stages[uid]
        for inputs in self._inputs.values():
            for number, (read, name) in enumerate(inputs):
                if read == uid:
                    # After a hash edge, a forward edge preserved the order per key; a hash edge preserves it as well.
                    inputs[number] = (upstream, before if name == "forward" else name)

    def _add(self, may_alter: bool) -> None:
        edges = [
            (uid, number)
            for uid, stage in self._stages.items()
            for number in range(len(self._inputs[uid]))
            if not (stage.kind == "rules" and number == 1)
        ]
        uid, number = self._chance.choice(edges)
        upstream, name = self._inputs[uid][number]
        kinds = ["pass"]
        if may_alter and self._is_immediate(upstream):
            if self._may_map and not self._has_above(upstream, COUNTS) and self._stages[uid].kind != "reduce":
                kinds.append("map")
            if self._stages[uid].kind == "sink" and not self._has_above(upstream, ("tally",)):
                kinds += ["tally"] * 2
        kind = self._chance.choice(kinds)
        added = f"{kind}-{uid}-{number}"
        if added in self._stages or added in self._gone or self._trades_places(added, upstream, uid):
            return
        before, after = self._stages[upstream], self._stages[uid]
        is_keyed = kind == "tally"
        parallelism = before.parallelism
        if is_keyed:
            drawn = self._chance.choice(PARALLELISMS) if self._topology.may_rescale else 1
            parallelism = after.parallelism if name == "forward" else drawn
        self._stages[added] = Stage(
            kind, parallelism, (), uid=added, rank=(before.rank + after.rank) / 2, two_inputs=False
        )
        self._inputs[added] = [(upstream, "hash" if is_keyed else "forward")]
        self._inputs[uid][number] = (added, name)

    def _trades_places(self, added: str, upstream: str, downstream: str) -> bool:
        """Return whether the operator was downstream of one that is now upstream, or the reverse."""
        below = [uid for uid in self._stages if uid == downstream or downstream in self._all_above(uid)]
        return any((added, uid) in self._above for uid in (upstream, *self._all_above(upstream))) or any(
            (uid, added) in self._above for uid in below
        )

    def _note_places(self) -> None:
        self._above.update((above, uid) for uid in self._stages for above in self._all_above(uid))

    def _all_above(self, uid: str) -> list[str]:
        """Return all direct and indirect inputs of a stage."""
        return [ancestor for read, _ in self._inputs[uid] for ancestor in (read, *self._all_above(read))]

    def _is_immediate(self, uid: str) -> bool:
        stage = self._stages[uid]
        is_immediate = stage.kind in IMMEDIATE and stage.calls is None
        return is_immediate and all(self._is_immediate(i) for i, _ in self._inputs[uid])

    def _has_above(self, uid: str, kinds: tuple[str, ...]) -> bool:
        return self._stages[uid].kind in kinds or any(self._has_above(i, kinds) for i, _ in self._inputs[uid])

    # --- parallelism -----------------------------------------------------------------------------------------------

    def rescale(self) -> None:
        """Change the parallelism of some stages; stages connected by forward edges keep a common one."""
        group = {uid: uid for uid in self._stages}
        for uid in self._stages:
            for upstream, name in self._inputs[uid]:
                if name == "forward":
                    old, new = group[uid], group[upstream]
                    group = {u: new if g == old else g for u, g in group.items()}
        # The number of copies broadcast to a sink is part of the expected output.
        fixed = {
            group[uid]
            for uid, stage in self._stages.items()
            if stage.kind == "sink" and any(name == "broadcast" for _, name in self._inputs[uid])
        }
        for chosen in dict.fromkeys(group.values()):
            if chosen in fixed or self._chance.random() < 0.3:
                continue
            parallelism = self._chance.choice(PARALLELISMS)
            for uid, stage in self._stages.items():
                if group[uid] == chosen:
                    stage.parallelism = parallelism
                    stage.chosen = self._chance.randrange(parallelism) if stage.kind == "labels" else 0

    # --- the result ------------------------------------------------------------------------------------------------

    def topology(self, is_shuffled: bool) -> Topology:
        """Build the topology, upstream before downstream, in the first job's order or a shuffled one."""
        self._note_places()
        left = sorted(self._stages.values(), key=lambda stage: stage.rank)
        placed: dict[str, int] = {}
        stages = []
        while left:
            ready = [s for s in left if all(upstream in placed for upstream, _ in self._inputs[s.uid])]
            stage = self._chance.choice(ready) if is_shuffled else ready[0]
            left.remove(stage)
            placed[stage.uid] = len(placed)
            inputs = tuple((placed[upstream], name) for upstream, name in self._inputs[stage.uid])
            stages.append(replace(stage, inputs=inputs))
        return replace(self._topology, stages=stages)
