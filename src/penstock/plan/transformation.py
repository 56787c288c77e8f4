"""What a program is made of: transformations, and the streams between them (B1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.core.connector import Sink, Source
from penstock.core.operators.base import StreamOperator
from penstock.core.task.partitioners import Partitioner


@dataclass(frozen=True)
class Upstream:
    """One stream that a transformation reads: whose output, partitioned how, and which side output.

    `partitioner` is None where nothing was said: forward between equal parallelisms, rebalance otherwise.
    """

    transformation: Transformation
    partitioner: Partitioner | None = None
    side_tag: str | None = None
    input_index: int = 0


@dataclass(eq=False)
class Transformation:
    """One step of a program, and what its user said about it. `kind` names it in plans and errors."""

    kind: str
    factory: Callable[[], StreamOperator]
    inputs: tuple[Upstream, ...] = ()
    name: str | None = None
    uid: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    parallelism_limit: int | None = None
    is_stateful: bool = False
    source: Source[Any, Any] | None = None
    sink: Sink[Any] | None = None
    #: what the client does with bytes that the sink emits to it, where that is not the sink's own handler
    client_handler: Callable[[int, bytes], None] | None = None

    @property
    def display_name(self) -> str:
        """The user's name for it, or its kind."""
        return self.name or self.kind
