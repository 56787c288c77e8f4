"""The graph of a job in the shape of Flink's plans."""

from __future__ import annotations

import html

import msgspec

from penstock.core.graph.job_graph import FORWARD, OperatorInfo
from penstock.core.job.view import JobView


class PlanInput(msgspec.Struct, frozen=True):
    """An edge into a node."""

    num: int
    id: str
    ship_strategy: str
    exchange: str


class PlanNode(msgspec.Struct, frozen=True):
    """A vertex."""

    id: str
    parallelism: int
    operator: str
    operator_strategy: str
    description: str
    optimizer_properties: dict[str, str]
    inputs: list[PlanInput]


class Plan(msgspec.Struct, frozen=True):
    """A job's graph."""

    jid: str
    name: str
    type: str
    nodes: list[PlanNode]


class JobPlan(msgspec.Struct, frozen=True):
    """The plan alone."""

    plan: Plan


def plan_of(view: JobView) -> Plan:
    """The plan of a job: nodes upstream before downstream, each with the edges into it."""
    is_bounded = view.mode not in ("STREAMING", "MICRO_BATCH")
    nodes = []
    for vertex in view.vertices:
        into = [edge for edge in view.edges if edge.target == vertex.index]
        inputs = [
            PlanInput(
                number,
                view.vertices[edge.source].vertex_id,
                edge.partitioning,
                "blocking" if is_bounded and edge.partitioning != FORWARD else "pipelined_bounded",
            )
            for number, edge in enumerate(into)
        ]
        description = "".join(_described(place, info) for place, info in enumerate(vertex.infos)) or vertex.name
        nodes.append(PlanNode(vertex.vertex_id, vertex.parallelism, "", "", description, {}, inputs))
    return Plan(view.job_id, view.name, "BATCH" if is_bounded else "STREAMING", nodes)


def _described(place: int, info: OperatorInfo) -> str:
    """An operator's line, as HTML: dashboards show it as such, so what the program wrote is escaped."""
    text = html.escape(info.description or info.name)
    return f"{text}<br/>" if place == 0 else f"+- {text}<br/>"
