"""The graph of a job in the shape of Flink's plans."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

import msgspec

from penstock.core.graph.job_graph import FORWARD, JobEdge, JobGraph, OperatorInfo
from penstock.core.job.view import JobView


class PlanInput(msgspec.Struct, frozen=True):
    """An edge into a node."""

    num: int
    id: str
    ship_strategy: str
    exchange: str


class PlanNode(msgspec.Struct, frozen=True):
    """A vertex. Flink's submit page shows a description only if a `job_vertex_id` is present."""

    id: str
    parallelism: int
    operator: str
    operator_strategy: str
    description: str
    optimizer_properties: dict[str, str]
    inputs: list[PlanInput]
    job_vertex_id: str | msgspec.UnsetType = msgspec.UNSET


class Plan(msgspec.Struct, frozen=True):
    """A job's graph."""

    jid: str
    name: str
    type: str
    nodes: list[PlanNode]


class JobPlan(msgspec.Struct, frozen=True):
    """The plan alone."""

    plan: Plan


def describe_plan(view: JobView) -> Plan:
    """Return the plan of a job: nodes upstream before downstream, each with its input edges."""
    vertices = [(vertex.infos, vertex.parallelism, vertex.name) for vertex in view.vertices]
    return _plan(view.job_id, view.name, view.mode, vertices, view.edges)


def plan_of_graph(graph: JobGraph) -> Plan:
    """Return the plan of a job that does not run, and so has no id yet."""
    vertices = [(vertex.operators, vertex.parallelism, vertex.name) for vertex in graph.vertices]
    plan = _plan("0" * 32, graph.name, graph.mode, vertices, graph.edges)
    nodes = [msgspec.structs.replace(node, job_vertex_id=node.id) for node in plan.nodes]
    return msgspec.structs.replace(plan, nodes=nodes)


def _plan(
    job_id: str,
    name: str,
    mode: str,
    vertices: Sequence[tuple[Sequence[OperatorInfo], int, str]],
    edges: Iterable[JobEdge],
) -> Plan:
    """Build a plan from vertices given by operators, parallelism and name."""
    is_bounded = mode not in ("STREAMING", "MICRO_BATCH")
    edges, ids = tuple(edges), [infos[0].operator_id for infos, _, _ in vertices]
    nodes = []
    for index, (infos, parallelism, vertex_name) in enumerate(vertices):
        inputs = [
            PlanInput(
                number,
                ids[edge.source],
                edge.partitioning,
                "blocking" if is_bounded and edge.partitioning != FORWARD else "pipelined_bounded",
            )
            for number, edge in enumerate(edge for edge in edges if edge.target == index)
        ]
        description = "".join(_described(position, info) for position, info in enumerate(infos)) or vertex_name
        nodes.append(PlanNode(ids[index], parallelism, "", "", description, {}, inputs))
    return Plan(job_id, name, "BATCH" if is_bounded else "STREAMING", nodes)


def _described(position: int, info: OperatorInfo) -> str:
    """Return an operator's line as HTML. Dashboards render it, so the program's text is escaped."""
    text = html.escape(info.description or info.name)
    return f"{text}<br/>" if position == 0 else f"+- {text}<br/>"
