"""Every algorithm on random graphs and on real ones: `python -m tests.gelly.random --graphs 200 --target local`.

Each is compared with networkx, or with a naive computation. A failure names the seed: `--first-seed 17 --graphs 1`. On
Spark, where a job takes a second or more, `--some 2` lets the algorithms take turns: two for each graph.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter, defaultdict

from tests.gelly.library.cases import Case, cases_of, check_case, check_together
from tests.gelly.library.graphs import Given, random_graphs, real_graphs

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment


def environment(target: str, parallelism: int, execution_mode: str = "STREAMING") -> StreamExecutionEnvironment:
    settings = {
        "execution.target": target,
        "execution.runtime-mode": execution_mode,
        "parallelism.default": parallelism,
        "restart-strategy.type": "none",
    }
    return StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))


def in_turns(cases: list[Case], some: int | None, number: int) -> list[Case]:
    """So many of the cases, for the graph of this number."""
    if some is None:
        return cases
    return [cases[(number * some + place) % len(cases)] for place in range(min(some, len(cases)))]


def batches(cases: list[Case], target: str) -> list[list[Case]]:
    """The cases of a graph; on Spark, all that are no analytics in one."""
    if target == "local":
        return [[case] for case in cases]
    in_one = [case for case in cases if not case.is_analytic]
    return [one for one in (in_one, *([case] for case in cases if case.is_analytic)) if one]


def check(cases: list[Case], given: Given, env: StreamExecutionEnvironment) -> None:
    if cases[0].is_analytic:
        check_case(cases[0], given, env)
    else:
        check_together(cases, given, env)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=200, help="how many random graphs")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--target", choices=["local", "spark"], default="local")
    parser.add_argument("--parallelism", default="1,2,4", help="one after the other")
    parser.add_argument("--mode", choices=["STREAMING", "BATCH"], default="BATCH")
    parser.add_argument("--some", type=int, help="how many algorithms for each graph, in turns; all if left out")
    parser.add_argument("--only", default="", help="algorithms whose names contain this")
    parser.add_argument("--no-real-graphs", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    graphs = [] if arguments.no_real_graphs else real_graphs()
    graphs += random_graphs(arguments.graphs, arguments.first_seed)
    runs: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    wrong: list[str] = []
    done = 0
    for parallelism in map(int, arguments.parallelism.split(",")):
        for number, given in enumerate(graphs):
            wanted = [case for case in cases_of(given) if arguments.only in case.name]
            for cases in batches(in_turns(wanted, arguments.some, parallelism + number), arguments.target):
                begun = time.perf_counter()
                name = cases[0].name if len(cases) == 1 else f"{len(cases)} algorithms in one job"
                try:
                    check(cases, given, environment(arguments.target, parallelism, arguments.execution_mode))
                except Exception as error:  # noqa: BLE001 - told below
                    wrong.append(f"{name}, {given.name}, parallelism {parallelism}: {type(error).__name__} {error}")
                    print("WRONG", wrong[-1][:500], flush=True)
                runs[name] += len(cases)
                seconds[name] += time.perf_counter() - begun
            done += 1
            if arguments.target == "spark" or done % 20 == 0:
                told = f"{runs.total()} runs, {sum(seconds.values()):.0f} s, {len(wrong)} wrong"
                print(f"parallelism {parallelism}, up to {given.name}: {told}", flush=True)
    for name, count in sorted(runs.items()):
        print(f"{name}: {count} runs, {seconds[name]:.1f} s")
    print(f"{len(graphs)} graphs, {runs.total()} runs, {sum(seconds.values()):.0f} s, {len(wrong)} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
