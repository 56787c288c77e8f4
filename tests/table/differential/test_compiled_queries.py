"""Random queries run from their compiled plans: same operators, same ids of states, and DuckDB's rows.

Each run of the tests has a fresh seed, which a failure prints. In half of the runs a job of the query itself stops with
a savepoint, and a job of the plan goes on from there.
"""

from __future__ import annotations

import random
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.effort import tries
from tests.table.differential.chance import Chance
from tests.table.differential.invariants import Expected, faults_of
from tests.table.differential.memory import RUNS, Run
from tests.table.differential.oracle import UnsuitableWorldError, answer
from tests.table.differential.outputs import Result
from tests.table.differential.report import world_text
from tests.table.differential.runs import WorldEnvironment, _within, _WorldRun
from tests.table.differential.settings import Setting
from tests.table.differential.worlds import World, draw_world

from penstock.table import ExplainDetail, PlanReference
from penstock.table.table import Table as QueryTable

QUERIES = tries(24)
LIMIT_S = 20


class CompiledRun(_WorldRun):
    """A run whose INSERT goes through JSON; the first of two jobs is that of the query itself."""

    #: what EXPLAIN says of the query, and of its plan
    explained: tuple[str, str] = ("", "")

    def _insert(self, environment: WorldEnvironment, query: QueryTable, result: Result) -> None:
        def start(environment: WorldEnvironment) -> Any:
            self._create_sink(environment, environment.sql_query(self._world.query), result)
            insert = f"INSERT INTO result_sink {self._world.query}"
            if self._setting.disturbance == "savepoint" and not texts:
                texts.append(environment.compile_plan_sql(insert).as_json_string())
                return environment.execute_sql(insert).get_job_client()
            texts.append(texts[-1] if texts else environment.compile_plan_sql(insert).as_json_string())
            plan = environment.load_plan(PlanReference.from_json_string(texts[-1]))
            detail = ExplainDetail.JSON_EXECUTION_PLAN
            direct = environment.explain_sql(insert, detail).partition("== Streams ==")[2]
            self.explained = direct, plan.explain(detail).partition("== Streams ==")[2]
            return plan.execute().get_job_client()

        texts: list[str] = []
        self._run_jobs(environment, start)
        result.changes += self._run.committed.get("result", [])


def _check(world: World, disturbance: str, output: str) -> str:
    """What is wrong with a run of a world, or nothing."""
    expected = Expected(tuple(column.kind.type for column in world.columns), answer(world))
    run_id = uuid.uuid4().hex
    run = RUNS[run_id] = Run(dict(world.tables), is_batch=False)
    setting = Setting(output=output, disturbance=disturbance, batch=3)
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-compiled-") as folder:
            job = CompiledRun(world, setting, run_id, run, Path(folder))
            result = _within(LIMIT_S, run, job.result)
    finally:
        RUNS.pop(run_id, None)
    if job.explained[0] != job.explained[1]:
        return "the plan differs:\n{}\nfrom that of the query:\n{}".format(*job.explained[::-1])
    return "; ".join(faults_of(result, expected, None))


@pytest.mark.parametrize("disturbance", ["none", "savepoint"])
@pytest.mark.parametrize("output", ["INSERT of changes", "INSERT by key"])
def test_compiled_queries_have_the_states_and_rows_of_the_query_itself(disturbance: str, output: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    for number in range(QUERIES // 4):
        world = draw_world(Chance(f"{seed}/{number}"))
        try:
            wrong = _check(world, disturbance, output)
        except UnsuitableWorldError:
            continue
        assert not wrong, f"seed {seed}, query {number}: {wrong}\n{world_text(world)}"
