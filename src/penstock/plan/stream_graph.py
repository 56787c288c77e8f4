"""Builds the stream graph from transformations: operators with ids and parallelism, edges with partitioners.

Operator ids (H3). The id of an operator is its `uid_hash` if set, else the hash of its `uid` if set. Otherwise it is a
hash of the operator's build order and the ids of its inputs. A change upstream therefore changes it, so set `uid` on
operators that have state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import xxhash

from penstock.base.errors import ConfigurationError
from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.task.channels.partitioners import ForwardPartitioner, Partitioner, RebalancePartitioner

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
