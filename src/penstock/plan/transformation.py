"""What a program is made of: transformations, and the streams between them (B1)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.base.typeinfo import TypeInformation
from penstock.base.watermark_strategy import WatermarkAlignment
from penstock.core.connector import Sink, Source
from penstock.core.task.channels.partitioners import Partitioner
from penstock.plan.nodes import Node


@dataclass(frozen=True)
class Upstream:
    """One stream that a transformation reads: whose output, partitioned how, and which side output.

    `partitioner` is None if the program sets none: forward between equal parallelisms, rebalance otherwise.
    """

    transformation: Transformation
    partitioner: Partitioner | None = None
    side_tag: str | None = None
    input_index: int = 0
    #: of a partitioning by key, as far as the program says
    key_type: TypeInformation | None = None


class Chaining(enum.Enum):
    """Whether an operator may run in one task with its forward neighbours (B4)."""

    ALWAYS = "ALWAYS"
    HEAD = "HEAD"  # not with those ahead of it
    NEVER = "NEVER"


@dataclass(eq=False)
class Transformation:
    """One step of a program, with its user's settings.

    `kind` names it in plans and errors; `node` is what its operator is to do.
    """

    kind: str
    node: Node
    inputs: tuple[Upstream, ...] = ()
    name: str | None = None
    uid: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    parallelism_limit: int | None = None
    #: Whether it has the parallelism of a source that it reads directly, unless another is set, so that it sees the
    #: records in the order in which they are read.
    follows_source: bool = False
    is_stateful: bool = False
    source: Source[Any, Any] | None = None
    sink: Sink[Any] | None = None
    #: 32 hexadecimal digits, which are the operator's id then
    uid_hash: str | None = None
    description: str | None = None
    #: of the buffers in which the operator's output is sent; None for the job's setting
    buffer_timeout_ms: int | None = None
    chaining: Chaining = Chaining.ALWAYS
    #: None for that of the inputs, if all have the same
    slot_sharing_group: str | None = None
    #: what the operator emits, as far as the program says
    output_type: TypeInformation | None = None
    #: of a source: the group to whose watermarks it keeps close
    alignment: WatermarkAlignment | None = None
    #: what the client does with bytes that the sink emits to it, where that is not the sink's own handler
    client_handler: Callable[[int, bytes], None] | None = None

    @property
    def display_name(self) -> str:
        """The user's name for it, or its kind."""
        return self.name or self.kind

    @property
    def has_placed_id(self) -> bool:
        """Whether the program leaves it to Penstock to tell the operator from others."""
        return self.uid is None and self.uid_hash is None


def upstream_first(transformations: Iterable[Transformation]) -> list[Transformation]:
    """These and all that they read, directly or not, each after its inputs and otherwise in the order given."""
    ordered: dict[int, Transformation] = {}
    for transformation in transformations:
        waiting = [transformation]
        while waiting:
            missing = [u.transformation for u in waiting[-1].inputs if id(u.transformation) not in ordered]
            if missing:
                waiting.append(missing[0])
            else:
                found = waiting.pop()
                ordered[id(found)] = found
    return list(ordered.values())
