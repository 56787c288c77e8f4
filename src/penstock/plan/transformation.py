"""The elements of a program: transformations, and the streams between them (B1)."""

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
    """One stream that a transformation reads: its producer, its partitioner and its side output.

    `partitioner` is None if the program sets none: forward between equal parallelisms, rebalance otherwise.
    """

    transformation: Transformation
    partitioner: Partitioner | None = None
    side_tag: str | None = None
    input_index: int = 0
    #: the key type of a keyed partitioning, if the program declares it
    key_type: TypeInformation | None = None


class Chaining(enum.Enum):
    """Whether an operator may share a task with its forward neighbours (B4)."""

    ALWAYS = "ALWAYS"
    HEAD = "HEAD"  # starts a chain: not chained to upstream operators
    NEVER = "NEVER"


@dataclass(eq=False)
class Transformation:
    """One step of a program, with its user's settings.

    `kind` names it in plans and errors; `node` describes its operator.
    """

    kind: str
    node: Node
    inputs: tuple[Upstream, ...] = ()
    name: str | None = None
    uid: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    parallelism_limit: int | None = None
    #: Whether it defaults to the parallelism of a source that it reads directly, to see the records in the order of
    #: reading.
    follows_source: bool = False
    is_stateful: bool = False
    source: Source[Any, Any] | None = None
    sink: Sink[Any] | None = None
    #: the operator id, as 32 hexadecimal digits
    uid_hash: str | None = None
    description: str | None = None
    #: the timeout of the operator's output buffers; None for the job's setting
    buffer_timeout_ms: int | None = None
    chaining: Chaining = Chaining.ALWAYS
    #: None for the group of the inputs, if they share one
    slot_sharing_group: str | None = None
    #: the type of the operator's output, if the program declares it
    output_type: TypeInformation | None = None
    #: the watermark alignment group of a source
    alignment: WatermarkAlignment | None = None
    #: handles the bytes that the sink emits to the client; None for the sink's own handler
    client_handler: Callable[[int, bytes], None] | None = None

    @property
    def display_name(self) -> str:
        """The user's name for the transformation, or its kind."""
        return self.name or self.kind

    @property
    def has_placed_id(self) -> bool:
        """Whether Penstock derives the operator id from the operator's place, because the program sets no uid."""
        return self.uid is None and self.uid_hash is None


def upstream_first(transformations: Iterable[Transformation]) -> list[Transformation]:
    """Return these transformations and all their direct and indirect inputs.

    Inputs come first; otherwise the given order is kept.
    """
    ordered: dict[int, Transformation] = {}
    for transformation in transformations:
        waiting = [transformation]
        while waiting:
            missing = [u.transformation for u in waiting[-1].inputs if id(u.transformation) not in ordered]
            if missing:
                waiting.append(missing[0])
            else:
                current = waiting.pop()
                ordered[id(current)] = current
    return list(ordered.values())
