"""Runs the rows of partitions through the automaton of MATCH_RECOGNIZE, for streams and batches.

All partitions advance together, one row of each per turn, so that the conditions of a turn are evaluated as columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from penstock.core.patterns.matcher import Found
from penstock.core.patterns.memory import NO_LINK, Memory
from penstock.table.streaming.patterns.program import MatchProgram, Offered
from penstock.table.streaming.patterns.references import Matched


class _Turn(NamedTuple):
    """The next row of a partition."""

    key: Any
    memory: Memory
    time_ms: int
    offered: Offered


class Matching:
    """Advances the partial matches of partitions.

    Args:
        program: the executable pattern.
        memories: the partial matches of each partition, by its key.
        mark: called with the keys whose memories have changed.
        register: called with a time (ms) and a key at which to call `expire`.
    """

    def __init__(
        self,
        program: MatchProgram,
        memories: MutableMapping[Any, Any],
        mark: Callable[[Collection[Any]], None],
        register: Callable[[int, Any], Any],
    ) -> None:
        self._program = program
        self._matcher = program.matcher
        self._memories = memories
        self._mark = mark
        self._register = register
        #: the conditions under which a row begins a match
        start = self._matcher.candidates(Memory(Memory.empty()))[-1]
        self._begins = sorted(start.conditions)

    def take(self, sequences: Mapping[Any, Sequence[tuple[int, Offered]]], results: list[Matched]) -> None:
        """Process rows of partitions in order, each with its time (ms); add the matches to `results`."""
        active, number = list(sequences.items()), 0
        while active:
            self._take([(key, *rows[number]) for key, rows in active], results)
            number += 1
            active = [(key, rows) for key, rows in active if number < len(rows)]

    def expire(self, time_ms: int, key: Any, results: list[Matched]) -> None:
        """Discard the partial matches of a partition that have timed out by a time (ms)."""
        stored = self._memories.get(key)
        if stored is None:
            return
        memory = Memory(stored)
        self._advance(memory, time_ms, results)
        deadline = self._matcher.deadline_ms(memory)
        if deadline is not None:
            self._register(deadline, key)
        if memory.is_empty:
            del self._memories[key]
        self._mark((key,))

    def _take(self, rows: Sequence[tuple[Any, int, Offered]], results: list[Matched]) -> None:
        """Process one row of each given partition."""
        turns: list[_Turn] = []
        for key, time_ms, offered in rows:
            stored = self._memories.get(key)
            if stored is None:
                if not any(offered[1][number] for number in self._begins):
                    continue
                stored = self._memories[key] = Memory.empty()
            memory = Memory(stored)
            self._advance(memory, time_ms, results)
            turns.append(_Turn(key, memory, time_ms, offered))
        answers = self._answers(turns)
        for index, turn in enumerate(turns):
            known, (row, flags) = answers[index], turn.offered

            def holds(
                number: int,
                link: int,
                turn: _Turn = turn,
                known: dict[tuple[int, int], bool] = known,
                flags: Sequence[bool] = flags,
            ) -> bool:
                if not flags[number] or number not in self._program.conditions.of_match:
                    return flags[number]
                answer = known.get((number, link))
                return self._holds(turn, number, link) if answer is None else answer

            before = self._matcher.deadline_ms(turn.memory)
            self._add(results, self._matcher.process(turn.memory, row, turn.time_ms, holds), turn.time_ms)
            deadline = self._matcher.deadline_ms(turn.memory)
            if before is None and deadline is not None:
                self._register(deadline, turn.key)
            if turn.memory.is_empty:
                del self._memories[turn.key]
        self._mark([turn.key for turn in turns])

    def _answers(self, turns: Sequence[_Turn]) -> list[dict[tuple[int, int], bool]]:
        """For each turn, evaluate the conditions that read matched rows. Returns answers by (variable, link)."""
        of_match = self._program.conditions.of_match
        requests: dict[int, list[Matched]] = {}
        askers: dict[int, list[tuple[int, int]]] = {}
        for index, turn in enumerate(turns if of_match else ()):
            row, flags = turn.offered
            for candidate in self._matcher.candidates(turn.memory):
                numbers = [number for number in candidate.conditions & of_match if flags[number]]
                if numbers:
                    matched = Matched(_events(turn.memory, candidate.link), row)
                    for number in numbers:
                        requests.setdefault(number, []).append(matched)
                        askers.setdefault(number, []).append((index, candidate.link))
        results: list[dict[tuple[int, int], bool]] = [{} for _ in turns]
        for number, answers in self._program.conditions.answers(requests).items():
            for (index, link), answer in zip(askers[number], answers, strict=True):
                results[index][number, link] = answer
        return results

    def _holds(self, turn: _Turn, number: int, link: int) -> bool:
        return self._program.conditions.holds(number, Matched(_events(turn.memory, link), turn.offered[0]))

    def _advance(self, memory: Memory, up_to: int, results: list[Matched]) -> None:
        """Discard partial matches that have timed out, each at its own deadline, however far time has advanced."""
        while (deadline := self._matcher.deadline_ms(memory)) is not None and deadline <= up_to:
            self._add(results, self._matcher.advance(memory, deadline), deadline)

    def _add(self, results: list[Matched], result: Found, time_ms: int) -> None:
        results += [Matched(rows, None, time_ms) for rows in result.matches]


def _events(memory: Memory, link: int) -> dict[str, list[Any]]:
    return {} if link == NO_LINK else memory.events(link)
