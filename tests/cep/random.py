"""Random patterns over random events beside the oracle: `python -m tests.cep.random --cases 20000 --restarts`.

As a stream, a case goes through the operator's harness, event by event and watermark by watermark, on either backend;
with `--restarts` it is snapshotted at random points and restored with another parallelism. As a batch and in epochs,
cases are whole jobs in one process, several in each.
"""

from __future__ import annotations

import logging
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import click
from tests.cep.drawn import Case, draw_case
from tests.cep.operators import TIMED_OUT, Tell, select_key
from tests.cep.oracle.specifications import Stage
from tests.cep.oracle_check import Run, Told, differences
from tests.state.rocks import CanonicalRocks

from penstock.cep import CEP
from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import OneInputOperatorHarness, operator_harness

#: Events of a whole job come this much (ms) out of order at most.
DISORDER_MS = 10
CASES_IN_A_JOB = 25


@contextmanager
def on_backend(backend: str) -> Iterator[None]:
    """Harnesses keep their state there."""
    if backend == "heap":
        yield
        return
    with mock.patch.object(operator_harness, "HeapKeyedStateBackend", CanonicalRocks):
        yield


def check(case: Case, restart_seed: int | None = None, in_batches: bool = False) -> list[str]:
    """What is wrong when a case goes through the harness."""
    chance = None if restart_seed is None else random.Random(restart_seed)
    run = Run(case, OneInputOperatorHarness, chance, in_batches)
    try:
        run.run()
    except Exception as error:  # noqa: BLE001 - told as what is wrong with the case
        return [f"{type(error).__name__}: {error}"]
    return differences(case, run)


def check_seed(seed: int, with_restarts: bool) -> list[str]:
    """What is wrong with the case of a seed. The events of half of the cases come in batches."""
    return check(draw_case(seed), seed if with_restarts else None, seed % 2 == 0)


def check_job(cases: Sequence[Case], mode: str) -> list[list[str]]:
    """What is wrong with each of the cases, which are one job; none of their events is late."""
    config = Configuration()
    config.set_string("execution.target", "local")
    config.set_string("execution.runtime-mode", mode.replace("-", "_").upper())
    config.set_string("execution.micro-batch.max-records", "3")
    config.set_string("restart-strategy.type", "none")
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(2)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(DISORDER_MS)
    by_time = strategy.with_timestamp_assigner(lambda pair, _: pair[0])
    cases = [replace(case, inputs=tuple(one for one in case.inputs if not isinstance(one, int))) for case in cases]
    made: list[Any] = []
    for number, case in enumerate(cases):
        timed = env.from_collection(list(case.inputs)).assign_timestamps_and_watermarks(by_time).set_parallelism(1)
        events = timed.map(lambda pair: pair[1]).set_parallelism(1)
        found = CEP.pattern(events.key_by(select_key), case.specification.pattern()).process(Tell())
        made.append(found.map(partial(_of_case, number, False)))
        made.append(found.get_side_output(TIMED_OUT).map(partial(_of_case, number, True)))
    told = [Told() for _ in cases]
    with made[0].union(*made[1:]).execute_and_collect() as results:
        for number, is_time_out, one in results:
            (told[number].time_outs if is_time_out else told[number].matches).append(one)
    return [differences(case, one) for case, one in zip(cases, told, strict=True)]


def _of_case(number: int, is_time_out: bool, record: Any) -> Any:
    return number, is_time_out, record


def smaller(case: Case) -> Iterator[Case]:
    """Cases with a little less."""
    for place in range(len(case.inputs)):
        yield replace(case, inputs=case.inputs[:place] + case.inputs[place + 1 :])
    parts = case.specification.parts
    for place in range(len(parts)):
        rest = parts[:place] + parts[place + 1 :]
        if rest and isinstance(rest[0], Stage):
            yield replace(case, specification=replace(case.specification, parts=rest))
    plain = replace(case.specification, window_ms=None)
    if plain != case.specification:
        yield replace(case, specification=plain)
    for place, part in enumerate(parts):
        if not isinstance(part, Stage):
            continue
        changes: tuple[dict[str, Any], ...] = (
            {"is_optional": False},
            {"is_greedy": False},
            {"until": None},
            {"least": 1, "most": 1},
        )
        for change in changes:
            one: Stage = replace(part, **change)
            if one != part and not (one.is_greedy and not one.is_loop) and not (one.until and one.most is not None):
                changed = (*parts[:place], one, *parts[place + 1 :])
                yield replace(case, specification=replace(case.specification, parts=changed))


def minimal(case: Case, restart_seed: int | None = None, in_batches: bool = False) -> Case:
    """As little of a case as is still wrong in the same way."""
    kind = _kind(check(case, restart_seed, in_batches))
    while True:
        for one in smaller(case):
            try:
                if _kind(check(one, restart_seed, in_batches)) == kind:
                    case = one
                    break
            except Exception:  # noqa: BLE001 - no pattern any more
                continue
        else:
            return case


def _kind(found: list[str]) -> str:
    return "" if not found else " ".join(word for word in found[0].split() if word.isalpha())[:20]


@click.command()
@click.option("--cases", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--first", type=int, default=1, show_default=True, help="The first seed.")
@click.option("--backend", type=click.Choice(["heap", "rocksdb"]), default="heap", show_default=True)
@click.option(
    "--mode", type=click.Choice(["streaming", "micro-batch", "batch"]), default="streaming", show_default=True
)
@click.option("--restarts", is_flag=True, help="Snapshot and restore at random points (streaming only).")
@click.option("--failures", type=click.IntRange(1), default=10, show_default=True, help="Stop after so many.")
def main(cases: int, first: int, backend: str, mode: str, restarts: bool, failures: int) -> None:
    """Run cases, one a seed, and show what differs from the oracle, with as little of the case as it takes."""
    logging.disable(logging.CRITICAL)
    begun, failed, done = time.monotonic(), 0, 0
    seeds = range(first, first + cases)
    with on_backend(backend):
        for seed, found in _found(seeds, mode, restarts):
            done += 1
            if not found:
                continue
            failed += 1
            restart_seed = seed if restarts else None
            case = draw_case(seed)
            if mode == "streaming":
                case = minimal(case, restart_seed, seed % 2 == 0)
                found = check(case, restart_seed, seed % 2 == 0) or found
            print(f"seed {seed}: {case}", *found[:4], sep="\n    ", flush=True)
            if failed == failures:
                break
    logging.disable(logging.NOTSET)
    seconds = time.monotonic() - begun
    print(f"{done} cases, {failed} differ from the oracle; {seconds:.0f} s")
    sys.exit(1 if failed else 0)


def _found(seeds: Sequence[int], mode: str, restarts: bool) -> Iterator[tuple[int, list[str]]]:
    if mode == "streaming":
        yield from ((seed, check_seed(seed, restarts)) for seed in seeds)
        return
    for at in range(0, len(seeds), CASES_IN_A_JOB):
        some = seeds[at : at + CASES_IN_A_JOB]
        yield from zip(some, check_job([draw_case(seed) for seed in some], mode), strict=True)


if __name__ == "__main__":
    main()
