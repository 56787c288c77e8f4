"""Every example in every execution mode against a plain computation.

`python -m tests.examples.execution_modes --target spark` runs them on Spark.

What is final must be the same. Two execution modes tell results as they grow, and know late records; a batch tells the
last ones only, and has none that are late. Where that shows, an example's answer has a second function for the batch.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from penstock.common import Configuration
from penstock.datastream import DataStream, StreamExecutionEnvironment

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted([*FOLDER.glob("[!_]*.py"), *FOLDER.glob("cep/*.py")])
NAMES = [".".join(path.relative_to(FOLDER).with_suffix("").parts) for path in EXAMPLES]
EXECUTION_MODES = ["STREAMING", "BATCH", "MICRO_BATCH"]
#: Where an example is handed no records that could be counted.
FILE_RECORDS = 1_000


def count_records(given: Any) -> int:
    """How many records an example is handed, or told to make."""
    return given if isinstance(given, int) else len(given)


def labelled(position: int, record: Any) -> tuple[int, Any]:
    return position, record


def collect(env: StreamExecutionEnvironment, built: DataStream | tuple[DataStream, ...]) -> list[Any]:
    """The records of a stream; of several, each in a pair with its stream's position."""
    if isinstance(built, tuple):
        first, *others = [stream.map(partial(labelled, position)) for position, stream in enumerate(built)]
        built = first.union(*others)
    with built.execute_and_collect() as results:  # type: ignore[union-attr]
        return list(results)


def compare(
    name: str,
    target: str,
    parallelism: int,
    directory: Path,
    execution_mode: str = "STREAMING",
    epochs: int = 3,
    more: dict[str, Any] | None = None,
) -> None:
    """Run an example, with more settings if need be, and compare it with its answer in `answers`.

    In micro-batch its records are read in so many epochs at least.
    """
    example, plain = import_module(f"examples.{name}"), import_module(f"tests.examples.answers.{name}")
    inputs = plain.inputs() if hasattr(plain, "inputs") else ()
    settings = Configuration.from_dict(
        {
            "execution.target": target,
            "execution.runtime-mode": execution_mode,
            "execution.micro-batch.max-records": -(-max(map(count_records, inputs), default=FILE_RECORDS) // epochs),
            "parallelism.default": parallelism,
            "restart-strategy.type": "none",  # a mistake is told, rather than made again
            **(more or {}),
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.enable_checkpointing(200)
    if hasattr(plain, "run"):  # an example of files
        plain.run(env, directory)
        return
    results = collect(env, example.build(env, *inputs))
    ending = "_in_batch" if execution_mode == "BATCH" and hasattr(plain, "DIFFERS_IN_BATCH") else ""
    if hasattr(plain, "check"):
        getattr(plain, f"check{ending}")(results, *inputs)
    else:
        expected = getattr(plain, f"answer{ending}")(*inputs)
        assert expected
        assert Counter(results) == expected


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["spark", "local"], default="spark")
    parser.add_argument("--parallelism", default="1,4", help="one after the other")
    parser.add_argument("--modes", default=",".join(EXECUTION_MODES))
    parser.add_argument("--examples", default=",".join(NAMES))
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    runs = [
        (int(p), execution_mode)
        for p in arguments.parallelism.split(",")
        for execution_mode in arguments.execution_modes.split(",")
    ]
    print("seconds of each example, or what is wrong; the first run starts Spark")
    row(["example", *(f"{execution_mode} {parallelism}" for parallelism, execution_mode in runs)])
    row(["---"] * (1 + len(runs)))
    failures = []
    totals = dict.fromkeys(runs, 0.0)
    for name in arguments.examples.split(","):
        cells = []
        for parallelism, execution_mode in runs:
            begun = time.perf_counter()
            try:
                with tempfile.TemporaryDirectory() as directory:
                    compare(name, arguments.target, parallelism, Path(directory), execution_mode)
            except Exception as error:  # noqa: BLE001 - told below
                failures.append(f"{name}, {execution_mode}, parallelism {parallelism}: {type(error).__name__}: {error}")
            seconds = time.perf_counter() - begun
            totals[parallelism, execution_mode] += seconds
            failed = bool(failures) and failures[-1].startswith(f"{name}, {execution_mode}, parallelism {parallelism}:")
            cells.append("wrong" if failed else f"{seconds:.1f}")
        row([name, *cells])
    row(["all", *(f"{seconds:.0f}" for seconds in totals.values())])
    print(f"{len(runs) * len(arguments.examples.split(','))} runs, {len(failures)} wrong")
    print("\n".join(failures))
    return bool(failures)


def row(cells: Iterable[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
