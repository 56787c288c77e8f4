"""The stream graph of a program, built from its transformations, and the execution plan for display.

`StreamGraph` has operators with ids and parallelism, and edges with partitioners.

**Operator ids (H3).** The id of an operator is its `uid_hash` if set, else the hash of its `uid` if set. Otherwise it
is a hash of the operator's build order and the ids of its inputs. A change upstream therefore changes it, so set `uid`
on operators that have state.

`Plan` is the execution plan: text, Mermaid, SVG, HTML, and JSON in the shape of Flink's plans.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import xxhash

from penstock.base.errors import ConfigurationError, shorten
from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.graph import JobGraph, JobVertex, OperatorInfo
from penstock.runtime.task.channels.result_partition import ForwardPartitioner, Partitioner, RebalancePartitioner

DEFAULT_SLOT_SHARING_GROUP = "default"


@dataclass(frozen=True)
class StreamEdge:
    """An edge between two operators."""

    source: StreamNode
    target: StreamNode
    partitioner: Partitioner
    side_tag: str | None
    input_index: int


class StreamNode:
    """An operator of the program."""

    def __init__(
        self,
        transformation: Transformation,
        operator_id: str,
        parallelism: int,
        max_parallelism: int,
        slot_sharing_group: str = DEFAULT_SLOT_SHARING_GROUP,
    ) -> None:
        self.transformation = transformation
        self.operator_id = operator_id
        self.parallelism = parallelism
        self.max_parallelism = max_parallelism
        self.slot_sharing_group = slot_sharing_group
        self.in_edges: list[StreamEdge] = []
        self.out_edges: list[StreamEdge] = []

    @property
    def name(self) -> str:
        """The operator's name in plans and errors."""
        return self.transformation.display_name


class StreamGraph:
    """All operators, in topological order."""

    def __init__(self, nodes: list[StreamNode]) -> None:
        self.nodes = nodes


def build_stream_graph(
    transformations: Iterable[Transformation], parallelism_default: int, max_parallelism_default: int
) -> StreamGraph:
    """Build the graph of these transformations; raise `ConfigurationError` for a contradiction, naming the operator."""
    nodes: dict[int, StreamNode] = {}
    uids: dict[str, str] = {}
    ordered: list[StreamNode] = []
    for transformation in transformations:
        inputs = [nodes[id(u.transformation)] for u in transformation.inputs]
        if transformation.uid is not None:
            other = uids.setdefault(transformation.uid, transformation.display_name)
            if other != transformation.display_name or sum(n.transformation.uid == transformation.uid for n in ordered):
                raise ConfigurationError(
                    f"uid {transformation.uid!r} is used by {other!r} and by {transformation.display_name!r}; "
                    "a uid must be unique within a job"
                )
        operator_id = _operator_id(transformation, len(ordered), inputs)
        for other_node in ordered:
            if other_node.operator_id == operator_id:
                raise ConfigurationError(
                    f"uid hash {operator_id} is that of {other_node.name!r} and of {transformation.display_name!r}; "
                    "an operator's id must be unique within a job"
                )
        node = StreamNode(
            transformation,
            operator_id,
            _parallelism(transformation, parallelism_default, inputs),
            transformation.max_parallelism or max_parallelism_default,
            transformation.slot_sharing_group or _common_group(inputs),
        )
        if node.parallelism > node.max_parallelism:
            raise ConfigurationError(
                f"operator {node.name!r} has parallelism {node.parallelism}, over its maximum parallelism "
                f"{node.max_parallelism}; raise pipeline.max-parallelism"
            )
        for upstream, source in zip(transformation.inputs, inputs, strict=True):
            edge = _edge(upstream, source, node)
            source.out_edges.append(edge)
            node.in_edges.append(edge)
        nodes[id(transformation)] = node
        ordered.append(node)
    return StreamGraph(ordered)


def operator_id_of_uid(uid: str) -> str:
    """Return the id of the operator with this uid."""
    return xxhash.xxh3_128_hexdigest(f"uid:{uid}".encode())


def _common_group(inputs: list[StreamNode]) -> str:
    groups = {node.slot_sharing_group for node in inputs}
    return groups.pop() if len(groups) == 1 else DEFAULT_SLOT_SHARING_GROUP


def _operator_id(transformation: Transformation, position: int, inputs: list[StreamNode]) -> str:
    if transformation.uid_hash is not None:
        return transformation.uid_hash
    if transformation.uid is not None:
        return operator_id_of_uid(transformation.uid)
    return xxhash.xxh3_128_hexdigest("|".join(["place", str(position), *(n.operator_id for n in inputs)]).encode())


def _parallelism(transformation: Transformation, default: int, inputs: list[StreamNode]) -> int:
    limit, parallelism = transformation.parallelism_limit, transformation.parallelism
    if limit is not None and parallelism is not None and parallelism > limit:
        raise ConfigurationError(
            f"operator {transformation.display_name!r} can have at most parallelism {limit}, not {parallelism}"
        )
    if parallelism is None and transformation.follows_source and len(inputs) == 1:
        upstream = transformation.inputs[0]
        if upstream.partitioner is None and upstream.side_tag is None and upstream.transformation.source is not None:
            return inputs[0].parallelism
    return parallelism or (default if limit is None else min(default, limit))


def _edge(upstream: Upstream, source: StreamNode, target: StreamNode) -> StreamEdge:
    partitioner = upstream.partitioner
    same = source.parallelism == target.parallelism
    if partitioner is None:
        partitioner = ForwardPartitioner() if same else RebalancePartitioner()
    elif isinstance(partitioner, ForwardPartitioner) and not same:
        raise ConfigurationError(
            f"forward() from {source.name!r} (parallelism {source.parallelism}) to {target.name!r} (parallelism "
            f"{target.parallelism}): both must have the same parallelism; use rebalance() instead"
        )
    return StreamEdge(source, target, partitioner, upstream.side_tag, upstream.input_index)


#: the number of characters of an operator's description in a picture
_DESCRIPTION_LETTERS: Final = 80
_WIDTH_OF_LETTER, _LINE, _GAP_X, _GAP_Y, _MARGIN = 7, 18, 40, 90, 12


class Plan:
    """The job graph of a program: vertices (operators chained into one task), and the edges between them.

    `str(plan)` is text; a notebook displays the plan as a picture.
    """

    def __init__(self, stream_graph: StreamGraph, job_graph: JobGraph) -> None:
        self._stream_graph = stream_graph
        self._job_graph = job_graph
        self._nodes = {node.operator_id: node for node in stream_graph.nodes}

    @property
    def job_graph(self) -> JobGraph:
        """The vertices and edges."""
        return self._job_graph

    # --- text --------------------------------------------------------------------------------------------------------

    def to_text(self) -> str:
        """Return one paragraph per vertex: its number, operators and parallelism, and the inputs of its records."""
        job = self._job_graph
        lines = [f"{job.name}: {len(job.vertices)} vertices, {job.slots_required} slots"]
        for vertex in job.vertices:
            group = (
                "" if vertex.slot_sharing_group == "default" else f", slot sharing group {vertex.slot_sharing_group}"
            )
            lines.append(f"[{vertex.index}] parallelism {vertex.parallelism}{group}")
            for edge in job.get_inputs(vertex.index):
                second = " as second input" if edge.input_index == 1 else ""
                lines.append(f"    <- [{edge.source}] {edge.partitioning}{second}")
            lines += [f"    {line}" for operator in vertex.operators for line in self._about(operator.operator_id)]
        return "\n".join(lines) + "\n"

    def _about(self, operator_id: str) -> list[str]:
        node = self._nodes[operator_id]
        details = [f"uid {node.transformation.uid}"] if node.transformation.uid else []
        details += ["state"] if node.transformation.is_stateful else []
        first = f"{node.name} ({', '.join(details)})" if details else node.name
        description = node.transformation.description
        return [first, *([f"    {description}"] if description else [])]

    __str__ = to_text
    __repr__ = to_text

    # --- pictures ----------------------------------------------------------------------------------------------------

    def to_mermaid(self) -> str:
        """Return a Mermaid flowchart: a box per vertex with its operators, an arrow per edge with its partitioning."""
        lines = ["flowchart LR"]
        for vertex in self._job_graph.vertices:
            text = "<br/>".join(_escaped(line) for line in _describe_vertex(vertex))
            lines.append(f'    v{vertex.index}["{text}"]')
        for edge in self._job_graph.edges:
            lines.append(f"    v{edge.source} -- {edge.partitioning} --> v{edge.target}")
        return "\n".join(lines) + "\n"

    def to_svg(self) -> str:
        """Return the flowchart as an SVG drawing, sources on top."""
        boxes = _placed(self._job_graph)
        width = max(box.x + box.width for box in boxes) + _MARGIN
        height = max(box.y + box.height for box in boxes) + _MARGIN
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'font-family="sans-serif" font-size="12">',
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>',
        ]
        for edge in self._job_graph.edges:
            parts += _arrow(boxes[edge.source], boxes[edge.target], edge.partitioning)
        for box in boxes:
            parts.append(
                f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6" fill="#eef4fb" '
                'stroke="#36648b"/>'
            )
            for index, line in enumerate(box.lines):
                weight = ' fill="#666"' if index == len(box.lines) - 1 else ""
                y = box.y + _LINE * (index + 1)
                parts.append(f'<text x="{box.x + 10}" y="{y}"{weight}>{html.escape(line)}</text>')
        return "\n".join([*parts, "</svg>"]) + "\n"

    def _repr_html_(self) -> str:
        return self.to_svg()

    # --- Flink's JSON ------------------------------------------------------------------------------------------------

    def to_json(self, more: Callable[[Transformation], Mapping[str, Any]] = lambda _: {}) -> str:
        """Return `{"nodes": [...]}` with an entry per operator: id, type, pact, contents, parallelism and predecessors.

        `more`: returns further fields for an operator.
        """
        ids = {node.operator_id: number for number, node in enumerate(self._stream_graph.nodes, start=1)}
        nodes = [{**_json_node(node, ids), **more(node.transformation)} for node in self._stream_graph.nodes]
        return json.dumps({"nodes": nodes}, indent=2)


def _json_node(node: StreamNode, ids: dict[str, int]) -> dict[str, Any]:
    transformation = node.transformation
    pact, title = "Operator", node.name
    if transformation.source is not None:
        pact, title = "Data Source", f"Source: {node.name}"
    elif transformation.sink is not None:
        pact, title = "Data Sink", f"Sink: {node.name}"
    entry: dict[str, Any] = {
        "id": ids[node.operator_id],
        "type": title,
        "pact": pact,
        "contents": transformation.description or title,
        "parallelism": node.parallelism,
    }
    has_two_inputs = any(edge.input_index == 1 for edge in node.in_edges)
    if node.in_edges:
        entry["predecessors"] = [
            {
                "id": ids[edge.source.operator_id],
                "ship_strategy": edge.partitioner.name,
                # As in Flink's plans, a single input is called the second.
                "side": "first" if has_two_inputs and edge.input_index == 0 else "second",
            }
            for edge in node.in_edges
        ]
    return entry


def _describe_vertex(vertex: JobVertex) -> list[str]:
    operators = [line for operator in vertex.operators for line in (operator.name, *_described(operator))]
    return [*operators, f"x {vertex.parallelism}"]


def _described(operator: OperatorInfo) -> list[str]:
    return [f"   {shorten(operator.description, _DESCRIPTION_LETTERS)}"] if operator.description else []


def _escaped(line: str) -> str:
    return html.escape(line).replace("&quot;", "#quot;").replace("&#x27;", "#39;")


@dataclass
class _Box:
    lines: list[str]
    x: int
    y: int
    width: int
    height: int


def _placed(job_graph: JobGraph) -> list[_Box]:
    """Return a box for each vertex; a row holds the vertices with the same longest distance from a source."""
    depths: list[int] = []
    for vertex in job_graph.vertices:
        depths.append(max((depths[edge.source] + 1 for edge in job_graph.get_inputs(vertex.index)), default=0))
    boxes: list[_Box] = []
    ends = dict[int, int]()
    for vertex, depth in zip(job_graph.vertices, depths, strict=True):
        lines = _describe_vertex(vertex)
        width = 20 + _WIDTH_OF_LETTER * max(map(len, lines))
        x = ends.get(depth, _MARGIN - _GAP_X) + _GAP_X
        ends[depth] = x + width
        boxes.append(_Box(lines, x, 0, width, _LINE * len(lines) + 8))
    y = _MARGIN
    for depth in sorted(ends):
        row = [box for box, d in zip(boxes, depths, strict=True) if d == depth]
        for box in row:
            box.y = y
        y += max(box.height for box in row) + _GAP_Y - _LINE
    return boxes


def _arrow(source: _Box, target: _Box, label: str) -> Sequence[str]:
    x1, y1 = source.x + source.width // 2, source.y + source.height
    x2, y2 = target.x + target.width // 2, target.y
    middle_x, middle_y = (x1 + x2) // 2, (y1 + y2) // 2
    return (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#555" marker-end="url(#arrow)"/>',
        f'<text x="{middle_x + 6}" y="{middle_y}" fill="#555">{html.escape(label)}</text>',
    )
