"""What the operator gives beside what the oracle gives."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tests.cep.drawn import Case
from tests.cep.operators import LATE, TIMED_OUT, operator_factory
from tests.cep.oracle.answers import Answer, Match, TimeOut, answer

from penstock.state.keys import assign_key_group, subtask_of_key_group
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.testing import OneInputOperatorHarness

MakeHarness = Callable[..., OneInputOperatorHarness]


class Told:
    """What was told of a case: (key, match, time), and late events."""

    def __init__(self) -> None:
        self.matches: list[tuple[str, Any, int | None]] = []
        self.time_outs: list[tuple[str, Any, int]] = []
        self.late: list[Any] = []


class Run(Told):
    """A case through the operator, with snapshots and restores where chance says.

    Args:
        case: what is run.
        make_harness: makes a harness, of a factory and a parallelism.
        chance: where it is restored, and into how many subtasks (on RocksDB into one: these harnesses do not deal its
            files out); None for nowhere.
        in_batches: whether events between two watermarks come together, rather than one by one.
    """

    def __init__(
        self,
        case: Case,
        make_harness: MakeHarness,
        chance: random.Random | None = None,
        in_batches: bool = False,
    ) -> None:
        super().__init__()
        self._batches: dict[OneInputOperatorHarness, list[Any]] = {}
        self._in_batches = in_batches
        self._case = case
        self._make = make_harness
        self._chance = chance
        self._factory = operator_factory(case.specification.pattern())
        self._harnesses: list[OneInputOperatorHarness] = []
        self._watermark: int | None = None
        self._snapshots = 0

    def run(self) -> None:
        """From its first event to the end of its input."""
        self._open(1, [])
        try:
            for one in self._case.inputs:
                if self._chance is not None and self._chance.random() < 0.35:
                    self._restore(self._chance.choice((1, 1, 2, 3)))
                if isinstance(one, int):
                    self._give_batches()
                    self._watermark = max(one, self._watermark or 0)
                    for harness in self._harnesses:
                        harness.watermark(self._watermark)
                else:
                    self._batches.setdefault(self._owner(one[1].key), []).append(one)
                    if not self._in_batches:
                        self._give_batches()
            self._give_batches()
            for harness in self._harnesses:
                harness.end()
            self._take()
        finally:
            self._close()

    def _give_batches(self) -> None:
        for harness, batch in self._batches.items():
            harness.process_batch([event for _, event in batch], [time for time, _ in batch])
        self._batches = {}

    def _owner(self, key: str) -> OneInputOperatorHarness:
        """The harness of the subtask that has that key."""
        context = self._harnesses[0].context
        group = assign_key_group(key, context.max_parallelism)
        return self._harnesses[subtask_of_key_group(group, context.max_parallelism, context.parallelism)]

    def _open(self, parallelism: int, snapshots: list[bytes]) -> None:
        for subtask in range(parallelism):
            harness = self._make(self._factory, parallelism, subtask)
            harness.restore(*snapshots)
            harness.open()
            self._harnesses.append(harness)
            if self._watermark is not None:
                harness.watermark(self._watermark)

    def _restore(self, parallelism: int) -> None:
        if isinstance(self._harnesses[0].context.keyed, RocksDBKeyedStateBackend):
            parallelism = 1
        self._give_batches()
        self._snapshots += 1
        snapshots = [harness.snapshot(self._snapshots) for harness in self._harnesses]
        self._take()
        self._close()
        self._open(parallelism, snapshots)

    def _take(self) -> None:
        for harness in self._harnesses:
            self.matches += [record.value for record in harness.take_output()]
            self.time_outs += [record.value for record in harness.side_output(TIMED_OUT)]
            self.late += [record.value for record in harness.side_output(LATE)]

    def _close(self) -> None:
        with ExitStack() as stack:
            for harness in self._harnesses:
                stack.callback(harness.close)
        self._harnesses = []


def differences(case: Case, run: Told) -> list[str]:
    """What the operator gave and should not have, and the other way round."""
    found: list[str] = []
    if sorted(run.late) != sorted(case.late()):
        found.append(f"late: {run.late} instead of {case.late()}")
    for key, events in case.in_time().items():
        told = [Match(match, at_ms) for of, match, at_ms in run.matches if of == key]
        wanted = answer(case.specification, events, [match.shown for match in told])
        found += [f"key {key}: {one}" for one in _of_matches(case, wanted, told)]
        time_outs = {TimeOut(match, at_ms) for of, match, at_ms in run.time_outs if of == key}
        for name, some in (("missing", wanted.time_outs - time_outs), ("not expected", time_outs - wanted.time_outs)):
            found += [f"key {key}: time-out {name}: {one}" for one in sorted(some)]
    return found


def _of_matches(case: Case, wanted: Answer, told: list[Match]) -> list[str]:
    expected = [match.shown for match in wanted.matches]
    given = [match.shown for match in told]
    if has_loose_group(case):
        # How often Flink tells a match that goes around a group is an accident of its automaton.
        expected, given = list(dict.fromkeys(expected)), list(dict.fromkeys(given))
    if Counter(expected) != Counter(given):
        more, less = Counter(given) - Counter(expected), Counter(expected) - Counter(given)
        return [f"not expected: {one}" for one in more.elements()] + [f"missing: {one}" for one in less.elements()]
    if case.specification.skip.kind != "no_skip" and expected != given:
        return [f"order: {given} instead of {expected}"]
    if case.specification.skip.kind == "no_skip" and not has_loose_group(case):
        at = 0
        for moment in wanted.moments:
            if Counter(one.shown for one in moment) != Counter(given[at : at + len(moment)]):
                return [f"order: {given} instead of {expected}"]
            at += len(moment)
    times = {match.shown: match.at_ms for match in wanted.matches if match.at_ms is not None}
    return [
        f"time of {one.shown}: {one.at_ms} instead of {times[one.shown]}"
        for one in told
        if one.shown in times and one.at_ms != times[one.shown]
    ]


def has_loose_group(case: Case) -> bool:
    """Whether it has a group that comes any number of times."""
    return any(getattr(part, "parts", ()) and part.most != part.least for part in case.specification.parts)  # type: ignore[union-attr]
