"""Run one query of Nexmark, as often as standard input asks it to (see `query_process`).

The package and the benchmarks are those that the path names, so this also serves another revision of them. It uses only
what all of them have; where `Runs` has no `run`, a run is wall time and processor time.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import penstock
from benchmarks.nexmark_sql.events import AT_ONCE, Pace
from benchmarks.nexmark_sql.events import events as made_events
from benchmarks.nexmark_sql.queries import query
from benchmarks.nexmark_sql.running import Runs
from penstock.base.errors import PenstockError


def serve(settings: dict[str, Any]) -> Iterator[str]:
    """Yield an answer for the query, and one for each line of standard input."""
    if not Path(penstock.__file__).is_relative_to(settings["source"]):
        raise SystemExit(f"the package of {penstock.__file__} is not the one of {settings['source']}")
    nexmark_query = query(Path(settings["folder"]), settings["name"], Path(settings["scratch"]))
    if settings["with_latency"]:
        from benchmarks.nexmark_sql.latency import with_latency_sink

        nexmark_query = with_latency_sink(nexmark_query)
    runs = Runs(
        Path(settings["folder"]),
        settings["events"],
        settings["rate"],
        mini_batch=settings["mini_batch"],
        waits_ms=0,
        chunks=AT_ONCE,
        options=settings["options"],
    )
    try:
        runs.warmed(nexmark_query)
        yield "ready"
        for line in sys.stdin:
            command, *arguments = line.split()
            if command == "sample":
                # The first events, to tell whether two revisions make the same.
                yield json.dumps(made_events(100, runs.rate, Pace()).to_pylist(), default=str)
                continue
            if command == "state":
                yield str(runs.stop_behind_all(nexmark_query, Path(arguments[0])))
                continue
            events, per_second = map(int, arguments)
            at = dataclasses.replace(runs, events=events, per_second=per_second or None)
            run = getattr(at, "run", None)
            if run is None:
                wall_s, cpu_s = at.seconds(nexmark_query)
                yield json.dumps({"wall_s": wall_s, "cpu_s": cpu_s})
            else:
                yield json.dumps(dataclasses.asdict(run(nexmark_query)))
    except PenstockError as error:
        yield f"refused {type(error).__name__}: {' '.join(str(error).split())}"


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the query prints is no answer
    for answer in serve(json.loads(sys.argv[1])):
        answers.write(f"nexmark {answer}\n")
        answers.flush()
