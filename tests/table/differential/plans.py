"""What the planner of streams says of a query, which its changes have to keep to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.base.configuration import Configuration
from penstock.datastream.data_stream import StreamExecutionEnvironment
from penstock.sql.functions.definition import Session
from penstock.sql.logical.nodes import INSERTS, Node
from penstock.sql.stream.executor import StreamExecutor
from penstock.sql.tables.connector import Connectors


@dataclass(frozen=True)
class PlanFacts:
    """Facts of a plan.

    Args:
        is_append_only: whether it sends inserts alone.
        upsert_keys: the places of the columns that tell its rows apart; several such sets may be known.
    """

    is_append_only: bool
    upsert_keys: tuple[tuple[int, ...], ...]


def collect_facts(plan: Node, connectors: Connectors, options: Mapping[str, str], session: Session) -> PlanFacts:
    """What the planner says of a plan. Raises what planning raises."""
    environment = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(dict(options)))
    planner = StreamExecutor(connectors)._planner(environment, options, session)
    run = planner.rewritten(plan)
    keys = planner.upsert_keys.of(run)
    return PlanFacts(planner.changes(run) == INSERTS, tuple(sorted(tuple(sorted(key)) for key in keys)))
