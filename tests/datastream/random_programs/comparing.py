"""Compares what a program gives with what the interpreter gives, and looks for the smallest program that differs."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from tests.datastream.random_programs.oracle import Results, compute_results
from tests.datastream.random_programs.programs import Program, drawn_program
from tests.datastream.random_programs.running import run
from tests.datastream.random_programs.settings import VALUES, Setting, drawn_setting, possible

#: so many smaller programs are tried at most
SHRINKS_MAX: Final = 400


@dataclass(frozen=True)
class Difference:
    """A program that gives something else than it should."""

    seed: int
    program: Program
    setting: Setting
    found: Results | str
    wanted: Results

    def __str__(self) -> str:
        lines = [
            f"program {self.seed} differs: {self.setting}",
            f"  replay: python -m tests.datastream.random_programs --only {self.seed}",
            *(f"  stage: {stage}" for stage in self.program.stages),
            f"  events (key, value, ms), watermark {self.program.world.lag_ms} ms behind: "
            f"{list(self.program.world.events)}",
        ]
        if isinstance(self.found, str):
            return "\n".join([*lines, f"  raised: {self.found}"])
        for key in sorted(self.found.keys() | self.wanted.keys()):
            found, wanted = self.found.get(key, []), self.wanted.get(key, [])
            if found != wanted:
                lines += [f"  key {key}: {found}", f"  should be: {wanted}"]
        return "\n".join(lines)


@dataclass
class Search:
    """What was tried."""

    programs: int = 0
    runs: int = 0
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)

    def rarest(self) -> tuple[tuple[str, str], int]:
        """The pair of possible settings that occurred least."""
        return min(((pair, self.pairs[pair]) for pair in possible_pairs()), key=lambda one: one[1])


def possible_pairs() -> Iterator[tuple[str, str]]:
    """Each two values that a setting can have together."""
    names = list(VALUES)
    for index, name in enumerate(names):
        for other in names[index + 1 :]:
            for value in VALUES[name]:
                for second in VALUES[other]:
                    setting = replace(Setting(), **{name: value, other: second})
                    kept = possible(setting, drawn_program(0))
                    if getattr(kept, name) == value and getattr(kept, other) == second:
                        yield f"{name}={value}", f"{other}={second}"


@contextmanager
def quiet() -> Iterator[None]:
    """Jobs that fail on purpose say so."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def check(seed: int, search: Search, shrinks: bool = True) -> Difference | None:
    """Run the program of a seed in the reference setting and in two others; the first difference, made small."""
    program = drawn_program(seed)
    chance = random.Random(f"settings {seed}")
    search.programs += 1
    with quiet():
        for setting in (Setting(), drawn_setting(chance, program), drawn_setting(chance, program)):
            search.runs += 1
            search.pairs.update(setting.pairs())
            found = difference(seed, program, setting)
            if found is not None:
                search.differences.append(smaller(found) if shrinks else found)
                return search.differences[-1]
    return None


def difference(seed: int, program: Program, setting: Setting) -> Difference | None:
    """None where a run gives what it should."""
    wanted = compute_results(program, setting.mode == "BATCH")
    try:
        found: Results | str = run(program, setting)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        found = f"{type(error).__name__}: {error}"
    return None if found == wanted else Difference(seed, program, setting, found, wanted)


def smaller(found: Difference) -> Difference:
    """A difference with fewer records, stages and settings."""
    tries = 0
    is_smaller = True
    while is_smaller and tries < SHRINKS_MAX:
        is_smaller = False
        for program, setting in _steps(found):
            tries += 1
            if tries > SHRINKS_MAX:
                break
            less = difference(found.seed, program, setting)
            if less is not None:
                found, is_smaller = less, True
                break
    return found


def _steps(found: Difference) -> Iterator[tuple[Program, Setting]]:
    """What is a step smaller."""
    program, setting, reference = found.program, found.setting, Setting()
    world, stages = program.world, program.stages
    for name in VALUES:
        if getattr(setting, name) != getattr(reference, name):
            less = possible(replace(setting, **{name: getattr(reference, name)}), program)
            if less != setting:
                yield program, less
    for place in range(len(stages)):
        less_stages = (*stages[:place], *stages[place + 1 :])
        if less_stages:
            yield replace(program, stages=less_stages), setting
    count = len(world.events)
    for size in (count // 2, count // 4, 1):
        for begin in range(0, count, size) if size else ():
            events = (*world.events[:begin], *world.events[begin + size :])
            if events:
                yield replace(program, world=replace(world, events=events)), setting
