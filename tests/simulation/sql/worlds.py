"""A job that is a SQL plan, as a topology of the simulator: its stages are its tables and its sink."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from typing import Final

from tests.simulation.sql import process_queries, queries, timed_queries
from tests.simulation.sql.answers import Told, flaws_of_changes, flaws_of_upserts
from tests.simulation.sql.queries import Query
from tests.simulation.sql.sources import ChangelogSource
from tests.simulation.sql.tables import TableMaker
from tests.table.planned import manager_of, plan_query

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.drivers.simulation.connectors import SimulatedSink
from penstock.drivers.simulation.oracle import Consumed
from penstock.drivers.simulation.topology import Stage, Topology
from penstock.plan.job_graph import build_job_graph
from penstock.plan.transformation import Transformation
from penstock.runtime.graph import JobGraph
from penstock.runtime.operators.connector import SinkOperator
from penstock.sql.logical.nodes import ALL, Node, Scan
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.planning.options import DEFAULTS, PlanOptions
from penstock.sql.stream.rows.state_ttl import MiniBatch, StreamSession
from penstock.sql.tables.tables import TableReader

#: A function that draws a query.
Shape = Callable[[random.Random, TableMaker], Query]
SHAPES: Final = (
    queries.groups,
    queries.groups,
    queries.nested,
    queries.distinct,
    queries.joins,
    queries.joins,
    queries.joins,
    queries.half_joins,
    queries.joins_of_groups,
    queries.first_rows,
    queries.first_rows,
    queries.first_groups,
    queries.normalized,
    queries.projected,
    queries.united,
    queries.running,
    queries.expired,
    timed_queries.window_aggregates,
    timed_queries.window_aggregates,
    timed_queries.session_aggregates,
    timed_queries.window_joins,
    timed_queries.window_ranks,
    timed_queries.interval_joins,
    timed_queries.temporal_joins,
    timed_queries.over_time,
    timed_queries.one_row,
    timed_queries.groups_of_windows,
)
#: By the kind of a world, which is the first word of its name.
KINDS: Final[Mapping[str, Sequence[Shape]]] = {"sql": SHAPES, "process": process_queries.SHAPES}
#: State that expires after so long (ms) expires in a history, or in none.
SHORT_TTL_MS, LONG_TTL_MS = 200, 10**10
SINK: Final = "sink"


@dataclass
class SqlTopology(Topology):
    """See the module's text. The parallelism of the sink's stage is that of the whole plan."""

    query: Query | None = None
    plan_options: PlanOptions = DEFAULTS
    #: whether the sink is told of updates without the row as it was, and looks at the key alone
    is_upsert: bool = False

    def __str__(self) -> str:
        assert self.query is not None
        tables = ", ".join(map(str, self.query.tables))
        told = " as upserts" if self.is_upsert else ""
        ttl = f" ttl {self.plan_options.state_ttl_ms}" if self.plan_options.state_ttl_ms else ""
        bundled = " in bundles" if self.plan_options.mini_batch else ""
        return f"{self.query.sql}{told}{ttl}{bundled} over {tables} [{self.stages[-1].parallelism}]"

    def job_graph(self, configuration: Configuration) -> JobGraph:
        """As the job master takes it: planned anew, as a program that is run again does."""
        configuration.write(options.PARALLELISM, self.stages[-1].parallelism)
        made: list[Transformation] = []
        in_memory = configuration.read(options.STATE_BACKEND) != "rocksdb"
        planner, plan = self._planner(made, in_memory)
        upstreams = planner.rows(plan, ALL, not self.is_upsert, SINK)
        sink = SimulatedSink(self.world, SINK)
        operator = partial(SinkOperator, sink)
        planner.step("Sink", operator, upstreams, True, name=SINK, uid=SINK, is_stateful=True, sink=sink)
        return build_job_graph(made, configuration, self.world)

    def _planner(self, made: list[Transformation], in_memory: bool = True) -> tuple[StreamPlanner, Node]:
        query = self.query
        assert query is not None
        functions = {} if query.function is None else {"f": query.function}
        manager = manager_of(*(table.ddl for table in query.tables), **functions)
        sources = {table.name: (table, stage.source) for table, stage in zip(query.tables, self.stages, strict=False)}

        def reader(scan: Scan) -> TableReader:
            table, source = sources[scan.path[-1]]
            assert isinstance(source, ChangelogSource)
            return table.reader(source)

        planned = replace(self.plan_options, is_in_memory=in_memory)
        planner = StreamPlanner(made.append, reader, StreamSession(), manager.calls(), True, planned)
        return planner, plan_query(query.sql, manager)

    def upsert_key(self) -> Sequence[int] | None:
        """The columns by which the plan says that rows are told apart."""
        planner, plan = self._planner([])
        keys = sorted(sorted(key) for key in planner.upsert_keys.of(planner.rewritten(plan)))
        return keys[0] if keys else None

    def flaws(self, told: Sequence[Told], read: Consumed) -> list[str]:
        """What is wrong with what the sink was told."""
        query = self.query
        assert query is not None
        expected = query.answer({one.name: one.rows(number, read) for number, one in enumerate(query.tables)})
        if not self.is_upsert:
            return flaws_of_changes(told, expected, not query.is_unordered)
        key = self.upsert_key()
        assert key is not None
        return flaws_of_upserts(told, expected, key)


def draw_topology(world: str) -> SqlTopology:
    """The job of a world."""
    chance = random.Random(f"query of {world}")
    query = chance.choice(KINDS[world.partition("-")[0]])(chance, TableMaker(chance))
    ttl_ms = SHORT_TTL_MS if query.expires else chance.choice((0, 0, 0, LONG_TTL_MS))
    mini_batch = MiniBatch(chance.choice((1, 20)), chance.choice((2, 5))) if chance.random() < 0.25 else None
    sources = [table.source(world, number, chance.random() < 0.6, ttl_ms) for number, table in enumerate(query.tables)]
    stages = list(starmap(_source_stage, enumerate(sources)))
    inputs = tuple((number, "hash") for number in range(len(stages)))
    stages.append(Stage("sink", chance.choice((1, 2, 2, 3, 4)), inputs, uid=SINK, rank=float(len(stages))))
    found = SqlTopology(world, 0, stages, query=query, plan_options=PlanOptions(ttl_ms, mini_batch))
    found.is_upsert = not query.expires and chance.random() < 0.4 and found.upsert_key() is not None
    return found


def _source_stage(number: int, source: ChangelogSource) -> Stage:
    return Stage("source", 1, (), source=source, uid=f"table-{number}", rank=float(number))
