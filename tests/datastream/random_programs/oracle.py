"""What a program gives, worked one record at a time over plain values: streams as they come, batches key by key.

It shares nothing with the runtime: stages are classes with dictionaries, and everything that one hands to the next is
copied. Comparing is by key, because the order between keys is nobody's promise.

A stream: a record goes through all stages, then the watermark that follows it. A batch: a stage gets all records of a
key in the order of their times, then the end of time.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

from tests.datastream.random_programs.programs import LATE_KEY, Plain, Process, Program, Reduce, Stage, Windowed

MIN_TIME: Final = -(2**63)
MAX_TIME: Final = 2**63 - 1

Record = list[Any]
#: the records that a key comes to, in order
Results = dict[int, list[list[int]]]
Emit = Callable[[Record, int], None]


def compute_results(program: Program, is_batch: bool) -> Results:
    """The results by key."""
    found: Results = defaultdict(list)
    rows = _as_batch(program) if is_batch else _as_stream(program)
    for record, _ in rows:
        found[record[0]].append(record[1])
    return dict(found)


def _as_stream(program: Program) -> list[tuple[Record, int]]:
    rows: list[tuple[Record, int]] = []
    emit: Emit = lambda record, time: rows.append((deepcopy(record), time))  # noqa: E731
    nodes: list[Node] = []
    for stage in reversed(program.stages):
        node = build_node(stage, emit)
        nodes.insert(0, node)
        emit = node.take
    watermark = MIN_TIME
    for key, value, time in program.world.events:
        emit([key, [value]], time)
        if time - program.world.lag_ms - 1 > watermark:
            watermark = time - program.world.lag_ms - 1
            passed_on = watermark
            for node in nodes:
                passed_on -= node.lag_ms
                node.reach(passed_on)
    for node in nodes:
        node.reach(MAX_TIME)
    return rows


def _as_batch(program: Program) -> list[tuple[Record, int]]:
    rows: list[tuple[Record, int]] = [([key, [value]], time) for key, value, time in program.world.events]
    for stage in program.stages:
        given, rows = rows, []
        emit: Emit = lambda record, time, rows=rows: rows.append((deepcopy(record), time))  # type: ignore[misc]  # noqa: E731
        if not stage.is_keyed:
            node = build_node(stage, emit)
            for record, time in given:
                node.take(record, time)
            continue
        for key in dict.fromkeys(record[0] for record, _ in given):
            node = build_node(stage, emit)
            for record, time in sorted((row for row in given if row[0][0] == key), key=lambda row: row[1]):
                node.take(record, time)
            node.reach(MAX_TIME)
    return rows


def build_node(stage: Stage, emit: Emit) -> Node:
    """What interprets a stage."""
    match stage:
        case Plain():
            return PlainNode(stage, emit)
        case Process():
            return PROCESS[stage.kind](stage, emit)
        case Reduce():
            return ReduceNode(emit)
        case Windowed():
            return WindowNode(stage, emit)


class Node:
    """A stage. `emit` takes what it gives, with its time."""

    #: By how much (ms) the watermark that it goes by, and passes on, is earlier than the one before it.
    lag_ms = 0

    def __init__(self, emit: Emit) -> None:
        self._emit = emit

    def take(self, record: Record, time: int) -> None:
        """A record comes."""
        self.on_record(deepcopy(record), time)

    def reach(self, watermark: int) -> None:
        """Event time has come to a watermark."""

    def on_record(self, record: Record, time: int) -> None:
        raise NotImplementedError

    def send(self, key: int, numbers: list[int], time: int) -> None:
        self._emit([key, list(numbers)], time)


class PlainNode(Node):
    def __init__(self, stage: Plain, emit: Emit) -> None:
        super().__init__(emit)
        self._kind = stage.kind
        self._buffers: dict[int, list[int]] = defaultdict(list)

    def on_record(self, record: Record, time: int) -> None:
        key, numbers = record
        if self._kind == "changes and returns":
            self.send(key, [*numbers, -1], time)
        elif self._kind == "changes between":
            self.send(key, numbers, time)
            self.send(key, [*numbers, len(numbers)], time)
        elif self._kind == "drops some":
            if sum(numbers) % 3 != 1:
                self.send(key, numbers, time)
        else:
            self._buffers[key] = [*self._buffers[key], *numbers][-5:]
            self.send(key, self._buffers[key], time)


class ReduceNode(Node):
    def __init__(self, emit: Emit) -> None:
        super().__init__(emit)
        self._sums: dict[int, list[int]] = {}

    def on_record(self, record: Record, time: int) -> None:
        key, numbers = record
        self._sums[key] = sorted([*self._sums[key], *numbers]) if key in self._sums else numbers
        self.send(key, self._sums[key], time)


# --- process functions ------------------------------------------------------------------------------------------------


class ProcessNode(Node):
    """A process function; `state` is one value for each key."""

    def __init__(self, stage: Process, emit: Emit) -> None:
        super().__init__(emit)
        self.delay_ms, self.count = stage.delay_ms, stage.count
        self.state: dict[int, Any] = {}
        self._timers: list[tuple[int, int]] = []
        self._set: set[tuple[int, int]] = set()

    def set_timer(self, key: int, time: int) -> None:
        if (time, key) not in self._set:
            self._set.add((time, key))
            heapq.heappush(self._timers, (time, key))

    def delete_timer(self, key: int, time: int) -> None:
        self._set.discard((time, key))

    def reach(self, watermark: int) -> None:
        while self._timers and self._timers[0][0] <= watermark:
            timer = heapq.heappop(self._timers)
            if timer in self._set:
                self._set.remove(timer)
                self.on_timer(timer[1], timer[0])

    def on_timer(self, key: int, time: int) -> None:
        raise NotImplementedError


class OfValue(ProcessNode):
    def on_record(self, record: Record, time: int) -> None:
        key, numbers = record
        self.state[key] = [*self.state.get(key, []), *numbers][-4:]
        self.send(key, self.state[key], time)
        self.send(key, self.state[key], time)


class OfList(ProcessNode):
    def on_record(self, record: Record, time: int) -> None:
        key, numbers = record
        held = self.state.setdefault(key, [])
        held.append(numbers)
        self.send(key, [len(one) for one in held], time)
        for one in held:
            self.send(key, one, time)
        if sum(numbers) % 4 == 0:
            self.state[key] = [[1], [2, 3]]
        elif sum(numbers) % 7 == 0:
            self.state[key] = []


class OfListTwice(ProcessNode):
    def on_record(self, record: Record, time: int) -> None:
        key, numbers = record
        held = [*self.state.get(key, []), *numbers]
        total = sum(held)
        self.send(key, [total, len(held), *held[:3]], time)
        if total % 3 == 0 and len(held) < 32:
            held += held
        if len(held) > 8:
            held = [number for number in held if number % 2]
        self.state[key] = held


class OfMap(ProcessNode):
    def on_record(self, record: Record, time: int) -> None:
        key, numbers = record
        held = self.state.setdefault(key, {})
        name = sum(numbers) % 3
        held[name] = [*held.get(name, []), len(held.get(name, []))]
        names = sorted(held)
        self.send(key, [sum(map(len, held.values())), len(held), *names, *names], time)
        self.send(key, held[name], time)
        if len(held[name]) > 3:
            del held[name]
        self.send(key, [int(name in held), int(not held)], time)


class OfMapWhileRead(ProcessNode):
    def on_record(self, record: Record, time: int) -> None:
        key, numbers = record
        held = {**self.state.get(key, {}), **{number % 5: number for number in numbers}}
        self.state[key] = {name: number for name, number in held.items() if name % 2 == 0}
        self.send(key, sorted(self.state[key].values()), time)


class OfReducing(ProcessNode):
    def on_record(self, record: Record, time: int) -> None:
        key, numbers = record
        # The first value is kept as it comes.
        self.state[key] = [*self.state[key], *numbers][-6:] if key in self.state else numbers
        self.send(key, self.state[key], time)
        if len(self.state[key]) > 5:
            del self.state[key]


class OfAggregating(ProcessNode):
    def on_record(self, record: Record, time: int) -> None:
        key, numbers = record
        self.state[key] = sorted([*self.state.get(key, []), *numbers])
        self.send(key, self.state[key], time)
        if len(self.state[key]) > 6:
            del self.state[key]


class WithTimers(ProcessNode):
    def on_record(self, record: Record, time: int) -> None:
        key, numbers = record
        self.state.setdefault(key, []).append((time, sum(numbers)))
        self.set_timer(key, time + self.delay_ms)

    def on_timer(self, key: int, time: int) -> None:
        due = [number for at, number in self.state[key] if at <= time - self.delay_ms]
        self.state[key] = [pair for pair in self.state[key] if pair[0] > time - self.delay_ms]
        self.send(key, [time, *due], time)


class WithTimersInTimers(ProcessNode):
    def on_record(self, record: Record, time: int) -> None:
        key, numbers = record
        self.state[key, time + self.delay_ms] = self.count  # type: ignore[index]
        self.set_timer(key, time + self.delay_ms)
        self.send(key, numbers, time)

    def on_timer(self, key: int, time: int) -> None:
        left = self.state.pop((key, time))  # type: ignore[call-overload]
        if left:
            due = time + self.delay_ms
            self.state[key, due] = max(left - 1, self.state.get((key, due), 0))  # type: ignore[index, call-overload]
            self.set_timer(key, due)
        self.send(key, [time, left], time)


class WithDeletedTimers(ProcessNode):
    def on_record(self, record: Record, time: int) -> None:
        key, _ = record
        if key in self.state:
            self.delete_timer(key, self.state[key])
        self.state[key] = time + self.delay_ms
        self.set_timer(key, self.state[key])

    def on_timer(self, key: int, time: int) -> None:
        self.send(key, [time, self.state.pop(key)], time)


class ChangesBetween(ProcessNode):
    def on_record(self, record: Record, time: int) -> None:
        key, numbers = record
        for count in range(1, min(len(numbers), 3) + 1):
            self.send(key, numbers[:count], time)


PROCESS: Final[dict[str, type[ProcessNode]]] = {
    "value": OfValue,
    "list": OfList,
    "list twice": OfListTwice,
    "map": OfMap,
    "map while read": OfMapWhileRead,
    "reducing": OfReducing,
    "aggregating": OfAggregating,
    "timers": WithTimers,
    "timers in timers": WithTimersInTimers,
    "deleted timers": WithDeletedTimers,
    "changes between": ChangesBetween,
}


# --- windows ----------------------------------------------------------------------------------------------------------


class Pane:
    """A window of a key: its end (None for one without time), its records, and what its trigger knows."""

    def __init__(self, key: int, start: int, end: int | None) -> None:
        self.key, self.start, self.end = key, start, end
        self.records: list[tuple[Record, int]] = []
        self.count = 0
        #: of a continuous trigger: when it fires next
        self.next_ms: int | None = None
        #: times at which the trigger is asked
        self.timers: set[int] = set()

    @property
    def last_ms(self) -> int:
        return MAX_TIME if self.end is None else self.end - 1


class WindowNode(Node):
    """Windows as Flink's documents describe them."""

    def __init__(self, stage: Windowed, emit: Emit) -> None:
        super().__init__(emit)
        self._stage = stage
        self._panes: dict[tuple[int, Any], Pane] = {}
        self._numbers: dict[int, int] = defaultdict(int)
        self._watermark = MIN_TIME
        # A record at the very end of a session belongs to it.
        self.lag_ms = int(stage.assigner[0] == "session")

    # --- records ---

    def on_record(self, record: Record, time: int) -> None:
        if self._stage.assigner[0] == "session":
            self._into_session(record, time)
            return
        windows = self._windows_of(record[0], time)
        is_late = bool(windows)  # between two sliding windows it is not
        for name, start, end in windows:
            if end is not None and end - 1 + self._stage.lateness_ms <= self._watermark:
                continue
            is_late = False
            pane = self._panes.setdefault((record[0], name), Pane(record[0], start, end))
            self._add((record[0], name), pane, record, time)
        if is_late:
            self._late(record, time)

    def _late(self, record: Record, time: int) -> None:
        if self._stage.keeps_late:
            self.send(record[0] + LATE_KEY, record[1], time)

    def _windows_of(self, key: int, time: int) -> list[tuple[Any, int, int | None]]:
        kind, *numbers = self._stage.assigner
        if kind == "tumbling":
            size, offset = numbers
            start = (time - offset) // size * size + offset
            return [(start, start, start + size)]
        if kind == "sliding":
            size, slide = numbers
            last = time // slide * slide
            starts = list(range(last, time - size, -slide))
            return [(start, start, start + size) for start in starts if start + size > time]
        if kind == "cumulative":
            size, step = numbers
            start = time // size * size
            return [((start, end), start, end) for end in range(start + step, start + size + 1, step) if end > time]
        if kind == "global":
            return [("all", 0, None)]
        size, slide = numbers
        number = self._numbers[key]
        self._numbers[key] += 1
        if not slide:
            return [(number // size, 0, None)]
        return [(window, 0, None) for window in range(number // slide, -1, -1) if window * slide + size > number]

    def _into_session(self, record: Record, time: int) -> None:
        key, gap = record[0], self._stage.assigner[1]
        start, end = time, time + gap
        touching = [pane for (of, _), pane in self._panes.items() if of == key and self._touch(pane, start, end)]
        first = min([start, *(pane.start for pane in touching)])
        last = max([end, *(pane.end or 0 for pane in touching)])
        if last - 1 + self._stage.lateness_ms <= self._watermark:
            self._late(record, time)
            return
        merged = touching[0] if len(touching) == 1 and (first, last) == (touching[0].start, touching[0].end) else None
        if merged is None:
            merged = Pane(key, first, last)
            for pane in touching:
                del self._panes[key, (pane.start, pane.end)]
                merged.records += pane.records
                merged.count += pane.count
                times = [one.next_ms for one in (pane, merged) if one.next_ms is not None]
                merged.next_ms = min(times, default=None)
            if touching:
                self._on_merge(merged)
            self._panes[key, (first, last)] = merged
        self._add((key, (first, last)), merged, record, time)

    @staticmethod
    def _touch(pane: Pane, start: int, end: int) -> bool:
        assert pane.end is not None
        return pane.start <= end and start <= pane.end

    def _on_merge(self, pane: Pane) -> None:
        kind = self._trigger()[0]
        if kind == "end" and pane.last_ms > self._watermark:
            pane.timers.add(pane.last_ms)
        if kind == "continuous" and pane.next_ms is not None:
            pane.timers.add(pane.next_ms)

    def _trigger(self) -> tuple[Any, ...]:
        if self._stage.trigger is not None:
            return self._stage.trigger
        kind = self._stage.assigner[0]
        return ("count", self._stage.assigner[1]) if kind == "count" else ("end",)

    def _purges(self) -> bool:
        return self._stage.purges or (self._stage.trigger is None and self._stage.assigner[0] == "count")

    def _add(self, name: tuple[int, Any], pane: Pane, record: Record, time: int) -> None:
        pane.records.append((record, time))
        kind, *numbers = self._trigger()
        if kind == "count":
            pane.count += 1
            fires = pane.count >= numbers[0]
            pane.count = 0 if fires else pane.count
        elif pane.last_ms <= self._watermark:
            fires = True
        else:
            fires = False
            pane.timers.add(pane.last_ms)
            if kind == "continuous" and pane.next_ms is None:
                self._next(pane, time - time % numbers[0])
        if fires:
            self._fire(name, pane)

    def _next(self, pane: Pane, time: int) -> None:
        pane.next_ms = min(time + self._trigger()[1], pane.last_ms)
        pane.timers.add(pane.next_ms)

    # --- time ---

    def reach(self, watermark: int) -> None:
        self._watermark = watermark
        while due := self._due(watermark):
            time, name, cleans = due
            pane = self._panes[name]
            if time in pane.timers:
                pane.timers.remove(time)
                self._on_time(name, pane, time)
            if cleans and self._cleanup_ms(pane) == time:
                self._panes.pop(name, None)

    def _due(self, watermark: int) -> tuple[int, tuple[int, Any], bool] | None:
        """The next time at which something happens to a window."""
        found = []
        for name, pane in self._panes.items():
            times = {time for time in pane.timers if time <= watermark}
            cleanup = self._cleanup_ms(pane)
            if pane.end is not None and cleanup <= watermark:
                times.add(cleanup)
            found += [(time, str(name), name, time == cleanup and pane.end is not None) for time in times]
        if not found:
            return None
        time, _, name, cleans = min(found, key=lambda one: one[:2])
        return time, name, cleans

    def _cleanup_ms(self, pane: Pane) -> int:
        return min(pane.last_ms + self._stage.lateness_ms, MAX_TIME)

    def _on_time(self, name: tuple[int, Any], pane: Pane, time: int) -> None:
        kind = self._trigger()[0]
        if kind == "count":
            return
        if time == pane.last_ms:
            self._fire(name, pane)
        elif kind == "continuous" and pane.next_ms == time:
            self._next(pane, time)
            self._fire(name, pane)

    # --- results ---

    def _fire(self, name: tuple[int, Any], pane: Pane) -> None:
        records = pane.records
        if self._stage.evictor is not None:
            *_, after = self._stage.evictor
            if not after:
                records[:] = self._evicted(records)
        if records:
            self._evaluate(pane, deepcopy([record for record, _ in records]))
        if self._stage.evictor is not None and after:
            records[:] = self._evicted(records)
        if self._purges():
            pane.records = []

    def _evicted(self, records: list[tuple[Record, int]]) -> list[tuple[Record, int]]:
        assert self._stage.evictor is not None
        kind, number, _ = self._stage.evictor
        if kind == "count":
            return records[len(records) - number :] if len(records) > number else records
        highest = max((time for _, time in records), default=0)
        return [pair for pair in records if pair[1] > highest - number]

    def _evaluate(self, pane: Pane, records: list[Record]) -> None:
        key, time = pane.key, pane.last_ms
        numbers = sorted(number for record in records for number in record[1])
        match self._stage.function:
            case "reduce" | "reduce that changes first":
                # A single record is not reduced.
                self.send(key, records[0][1] if len(records) == 1 else numbers, time)
            case "aggregate that gives its accumulator":
                self.send(key, numbers, time)
            case "aggregate and process":
                self.send(key, [pane.last_ms % 1000, *numbers], time)
            case "process that pops":
                self.send(key, numbers, time)
            case "process that gives its elements":
                for record in sorted(records, key=lambda record: record[1]):
                    self.send(key, record[1], time)
            case "process twice":
                self.send(key, [sum(len(record[1]) for record in records), len(records)], time)
