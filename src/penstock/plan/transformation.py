"""The elements of a program: transformations, the streams between them (B1), and nodes with a choice of operators.

`OperatorNode` describes an operator's task without selecting the operator. The API adds nodes, and the plan chooses
their operators when it builds the job graph, so DataStream programs and table queries get the same operators. If there
is no choice, a node is simply the operator's factory.

`WindowNode` and `ColumnWindowNode` choose the window operator (C1): a fast one if possible, otherwise the general one;
kernels for columns. The choice affects speed only. All operators for windows of records can restore each other's state
(`kept_windows`), so adding a trigger, an evictor or `clear` to a program does not orphan its savepoints.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

from penstock.base.declared_values import fitting, rounding
from penstock.base.errors import MisuseError, UnsupportedError
from penstock.base.typeinfo import RowTypeInfo, TypeInformation
from penstock.base.watermark_strategy import WatermarkAlignment
from penstock.runtime import windowing
from penstock.runtime.columns import Aggregate, ColumnKey
from penstock.runtime.connector import Sink, Source
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.columnar.windows import ColumnarSessionOperator, ColumnarWindowOperator
from penstock.runtime.operators.emitting import emitting_declared, emitting_rows, emitting_sides, emitting_singles
from penstock.runtime.operators.window.aligned import AlignedWindowOperator, SessionWindowOperator
from penstock.runtime.operators.window.base import WindowContents, WindowResult
from penstock.runtime.operators.window.general import WindowOperator
from penstock.runtime.task.channels.result_partition import Partitioner

Factory: TypeAlias = Callable[[], StreamOperator]


class OperatorNode(ABC):
    """A node with a choice of operators."""

    @abstractmethod
    def factory(self) -> Factory:
        """Return the factory of the chosen operator; it can be pickled if the node's values can."""

    @abstractmethod
    def parts(self) -> tuple[Any, ...]:
        """Return the values that distinguish the node from others of its kind, whatever operator is chosen.

        These are functions and the like.
        """


Node: TypeAlias = OperatorNode | Factory


def get_factory(node: Node) -> Factory:
    """Return the operator factory of a node."""
    return node.factory() if isinstance(node, OperatorNode) else node


@dataclass(frozen=True)
class DeclaredNode(OperatorNode):
    """A node whose output type, or types of side outputs by tag, the program declares.

    If a type declares rows, the tuples, lists and dicts that the operator emits become rows, and rows get the field
    order of the type. Numbers that it declares as FLOAT are rounded to single precision.
    """

    node: Node
    output_type: TypeInformation | None
    side_types: tuple[tuple[str, TypeInformation], ...] = ()

    def factory(self) -> Factory:
        """Return a factory of the operator that converts its records to the declared types."""
        factory, declared_type = get_factory(self.node), self.output_type
        if isinstance(declared_type, RowTypeInfo):
            factory = partial(emitting_rows, factory, declared_type)
            if rounding(declared_type) is not None:
                factory = partial(emitting_singles, factory, declared_type)
        elif declared_type is not None:
            factory = partial(emitting_declared, factory, declared_type)
        if self.side_types:
            factory = partial(emitting_sides, factory, self.side_types)
        return factory

    def parts(self) -> tuple[Any, ...]:
        """Return the node's parts, and its type if that is a ROW or has a FLOAT: checkpoints name only these types."""
        if isinstance(self.output_type, RowTypeInfo) or rounding(self.output_type) is not None:
            return self.node, self.output_type
        return (self.node,)


def declared(node: Node, output_type: TypeInformation | None) -> Node:
    """Return a node whose operator emits the declared type; the same node if the type needs no conversion."""
    return node if fitting(output_type) is None else DeclaredNode(node, output_type)


def with_declared_side(node: Node, tag_id: str, type_info: TypeInformation | None) -> Node:
    """Return a node whose operator converts the records of that side output to the type, as `declared` does.

    Raises:
        MisuseError: if another type is declared for the same side output.
    """
    if type_info is None or fitting(type_info) is None:
        return node
    declared_node = node if isinstance(node, DeclaredNode) else DeclaredNode(node, None)
    known = dict(declared_node.side_types)
    if known.setdefault(tag_id, type_info) != type_info:
        raise MisuseError(
            f"side output {tag_id!r} is read with two types, {known[tag_id]} and {type_info}: use one OutputTag"
        )
    return replace(declared_node, side_types=tuple(known.items()))


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


#: The assigners whose windows have specialized operators.
_FAST: Final[dict[type[Any], Callable[..., Any]]] = {
    windowing.TumblingEventTimeWindows: AlignedWindowOperator,
    windowing.SlidingEventTimeWindows: AlignedWindowOperator,
    windowing.CumulativeEventTimeWindows: AlignedWindowOperator,
    windowing.EventTimeSessionWindows: SessionWindowOperator,
}
#: The operators for windows of columns.
_COLUMNAR: Final[dict[type[Any], Callable[..., Any]]] = {
    windowing.TumblingEventTimeWindows: ColumnarWindowOperator,
    windowing.SlidingEventTimeWindows: ColumnarWindowOperator,
    windowing.CumulativeEventTimeWindows: ColumnarWindowOperator,
    windowing.EventTimeSessionWindows: ColumnarSessionOperator,
}


@dataclass(frozen=True)
class WindowNode(OperatorNode):
    """Keyed windows of records."""

    key_selector: Callable[[Any], Any]
    assigner: windowing.WindowAssigner[Any, Any]
    #: the assigner's default trigger, unless the program sets another
    trigger: windowing.Trigger[Any, Any]
    contents: WindowContents
    result: WindowResult | None = None
    #: how long (ms) after its end a window accepts late records
    lateness_ms: int = 0
    late_tag: str | None = None
    evictor: windowing.Evictor | None = None
    #: whether the window function is notified when windows are cleaned up
    clears: bool = False

    def factory(self) -> Factory:
        """Return a fast operator if windows fire once at their end, without evictor or `clear`, else the general."""
        arguments = (self.contents, self.result, self.lateness_ms, self.late_tag)
        fast = _FAST.get(type(self.assigner))
        fires_at_end = type(self.trigger) is windowing.EventTimeTrigger
        if fast is not None and fires_at_end and self.evictor is None and not self.clears:
            return partial(fast, self.key_selector, self.assigner, *arguments)
        return partial(WindowOperator, self.key_selector, self.assigner, self.trigger, *arguments, evictor=self.evictor)

    def parts(self) -> tuple[Any, ...]:
        """Return the parts that define the windows and their contents; savepoints survive a change of the others."""
        return self.key_selector, self.assigner, self.contents, self.result


@dataclass(frozen=True)
class ColumnWindowNode(OperatorNode):
    """Keyed windows of columns, aggregated by kernels; a window fires once, at its end.

    Raises:
        UnsupportedError: for windows other than tumbling, sliding, cumulative and session windows of event time.
    """

    key: ColumnKey
    assigner: windowing.WindowAssigner[Any, Any]
    aggregates: Sequence[Aggregate]
    late_tag: str | None = None

    def __post_init__(self) -> None:
        if type(self.assigner) not in _COLUMNAR:
            raise UnsupportedError(
                "select supports tumbling, sliding, cumulative and session windows of event time, not "
                f"{self.assigner!r}; use aggregate()"
            )

    def factory(self) -> Factory:
        """Return the operator for the assigner's windows."""
        return partial(_COLUMNAR[type(self.assigner)], self.key, self.assigner, self.aggregates, self.late_tag)

    def parts(self) -> tuple[Any, ...]:
        """Return the parts that define the windows and their keys."""
        return self.key, self.assigner
