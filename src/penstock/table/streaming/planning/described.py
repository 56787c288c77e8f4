"""Step metadata for JSON plans: changelog modes, upsert keys and state ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.plan.transformation import Transformation
from penstock.table.plan.changes import shown
from penstock.table.plan.logical import Write
from penstock.table.streaming.planning.planner import Planned, StreamPlanner


def build_step_describer(planner: StreamPlanner) -> Callable[[Transformation], dict[str, Any]]:
    """Return a function that describes a step: its fields, changelog mode, upsert keys and state id."""
    planned = {id(step): plan for step, plan in planner.steps}

    def facts(step: Transformation) -> dict[str, Any]:
        plan = planned.get(id(step))
        if plan is None:
            return {}
        state = {"stateId": step.uid_hash} if step.is_stateful else {}
        return {**_about_rows(planner, plan), **state}

    return facts


def _about_rows(planner: StreamPlanner, planned: Planned) -> dict[str, Any]:
    node = planner.rewritten(planned.node.input) if isinstance(planned.node, Write) else planned.node
    names = node.schema.names
    keys = [[names[index] for index in sorted(key)] for key in planner.upsert_keys.of(node)]
    return {
        "fields": names,
        "changelogMode": shown(planner.changes(node), planned.wants_before),
        "upsertKeys": sorted(keys),
    }
