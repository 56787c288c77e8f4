"""Base classes of streams: `Stream`, `Keyed` with its running aggregates (A1, A2), and `Partitioning` (A2, B1).

A `Stream` has the operator that produces it, its type and its environment, and adds operators. `check_needs_no_key`
rejects functions that need a key on a stream without one. `Partitioning` determines how records travel from the
subtasks of one operator to the next operator's. `projected_type` is the type of records projected to some of their
fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeAlias

from penstock.base.configuration import ExecutionConfig
from penstock.base.errors import MisuseError, WrongTypeError, WrongValueError
from penstock.base.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from penstock.datastream.environment import Environment, StreamT
from penstock.datastream.functions import Partitioner as PartitionerFunction
from penstock.datastream.operator_settings import OperatorSettings
from penstock.plan.stream_graph import Plan
from penstock.plan.transformation import Node, Transformation, Upstream, declared
from penstock.runtime.operators.emitting import refuse_generator_function
from penstock.runtime.operators.keyed import aggregates
from penstock.runtime.operators.record.stateless import method
from penstock.runtime.task.channels import result_partition


class Stream(OperatorSettings, Generic[StreamT]):
    """A stream of records: the output of one transformation, or of several as a union.

    Operators added to it produce streams of the environment's stream class.
    """

    def __init__(
        self,
        environment: Environment[StreamT],
        upstreams: tuple[Upstream, ...],
        type_info: TypeInformation | None = None,
    ) -> None:
        self._environment = environment
        self._upstreams = upstreams
        self._type_info = type_info

    @property
    def _transformation(self) -> Transformation:
        if len(self._upstreams) != 1:
            raise WrongTypeError("a union is not an operator: set a name or parallelism before the union or after it")
        return self._upstreams[0].transformation

    def get_name(self) -> str:
        """Return the operator's name."""
        return self._transformation.display_name

    def get_type(self) -> TypeInformation:
        """Return the declared type of the records, else `Types.PICKLED_BYTE_ARRAY()`, which fits any record."""
        declared = self._type_info or self._upstreams[0].transformation.output_type
        return Types.PICKLED_BYTE_ARRAY() if declared is None else declared

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """The outputs that the stream consists of; for code that adds transformations."""
        return self._upstreams

    def get_execution_environment(self) -> Environment[StreamT]:
        """Return the environment of the stream."""
        return self._environment

    def get_execution_config(self) -> ExecutionConfig:
        """Return the execution settings of the environment."""
        return self._environment.get_config()

    def plan(self) -> Plan:
        """Return the plan of this stream: as text, Mermaid or SVG; in a notebook, a picture."""
        return self._environment.describe_plan(self._upstreams)

    def explain(self) -> str:
        """Return the plan of this stream as text: tasks, the operators chained in each, and how records travel.

        Examples:
            >>> print(words.map(len).explain())
            Penstock Streaming Job: 1 vertices, 1 slots
            [0] parallelism 1
                Collection Source (state)
                Map
        """
        return self.plan().to_text()

    def _repr_html_(self) -> str:
        return self.plan().to_svg()

    @property
    def declared_type(self) -> TypeInformation | None:
        """The type of the records if the program declares it."""
        return self._type_info or self._upstreams[0].transformation.output_type

    def _partition_upstreams(self, partitioner: result_partition.Partitioner) -> tuple[Upstream, ...]:
        return tuple(Upstream(u.transformation, partitioner, u.side_tag) for u in self._upstreams)

    def _add(
        self,
        kind: str,
        node: Node,
        is_stateful: bool = False,
        output_type: TypeInformation | None = None,
        keeps_type: bool = False,
    ) -> StreamT:
        if keeps_type:
            output_type = self.declared_type
        else:
            node = declared(node, output_type)
        transformation = Transformation(kind, node, self._upstreams, is_stateful=is_stateful, output_type=output_type)
        self._environment.add(transformation)
        return self._environment.build_stream((Upstream(transformation),))


class Keyed(Stream[StreamT]):
    """A stream partitioned by key, whose records can be aggregated."""

    AccumulateType: TypeAlias = aggregates.AccumulateType

    _key_selector: Callable[[Any], Any]

    @property
    def key_selector(self) -> Callable[[Any], Any]:
        """The function that extracts the key of a record."""
        return self._key_selector

    def reduce(self, func: Any) -> StreamT:
        """Fold each record into its key's value, and emit the new value for every record.

        Args:
            func: a function of two values, the key's value so far and the record, or a `ReduceFunction`. A key's first
                record is its first value.

        Examples:
            >>> cups.reduce(lambda one, other: (one[0], one[1] + other[1])).collect()
            [('ann', 2), ('bob', 1), ('ann', 5)]
        """
        refuse_generator_function(func, "reduce")
        factory = partial(aggregates.KeyedReduceOperator, func, self._key_selector, self.declared_type)
        return self._add("Keyed Reduce", factory, is_stateful=True, keeps_type=True)

    def sum(self, position_to_sum: int | str = 0) -> StreamT:
        """Compute the running sum of a field; the other fields keep the values of the key's first record.

        Args:
            position_to_sum: the field by position, in tuples, lists, rows and dataclasses; or by name, in rows, named
                tuples, dataclasses and dicts (`f0`, `f1`, … in tuples). A plain number is its own field 0.

        Examples:
            >>> cups.sum(1).collect()
            [('ann', 2), ('bob', 1), ('ann', 5)]
        """
        return self._accumulate(self.AccumulateType.SUM, position_to_sum)

    def min(self, position_to_min: int | str = 0) -> StreamT:
        """Compute the running minimum of a field (see `sum`); other fields come from the key's first record.

        Examples:
            >>> cups.min(1).collect()
            [('ann', 2), ('bob', 1), ('ann', 2)]
        """
        return self._accumulate(self.AccumulateType.MIN, position_to_min)

    def max(self, position_to_max: int | str = 0) -> StreamT:
        """Compute the running maximum of a field (see `sum`); other fields come from the key's first record.

        Examples:
            >>> cups.max(1).collect()
            [('ann', 2), ('bob', 1), ('ann', 3)]
        """
        return self._accumulate(self.AccumulateType.MAX, position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> StreamT:
        """Emit the whole record with the smallest field so far (see `sum`), the first one in case of ties."""
        return self._accumulate(self.AccumulateType.MIN_BY, position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> StreamT:
        """Emit the whole record with the greatest field so far (see `sum`), the first one in case of ties.

        Examples:
            >>> orders = env.from_elements(("ann", 2, "tea"), ("ann", 3, "rum")).key_by(lambda order: order[0])
            >>> orders.max_by(1).collect()
            [('ann', 2, 'tea'), ('ann', 3, 'rum')]
        """
        return self._accumulate(self.AccumulateType.MAX_BY, position_to_max_by)

    def _accumulate(self, kind: AccumulateType, field: int | str) -> StreamT:
        aggregates.check_field(field)
        factory = partial(aggregates.KeyedAggregateOperator, kind, field, self._key_selector, self.declared_type)
        name = f"Keyed {kind.name.replace('_', ' ').title()}"
        return self._add(name, factory, is_stateful=True, keeps_type=True)


def check_needs_no_key(function: Any, keyed_class: type, plain_class: type, remedy: str) -> None:
    """Check that a function for keyed streams is not applied to a stream without a key.

    Raises:
        MisuseError: if the function is of `keyed_class` but not also of `plain_class`; the message names the remedy.
    """
    if isinstance(function, keyed_class) and not isinstance(function, plain_class):
        raise MisuseError(
            f"{type(function).__name__} is a {keyed_class.__name__}, but this stream has no key: partition it first, "
            f"for example with {remedy}"
        )


class Partitioning(Stream[StreamT]):
    """A stream that can be repartitioned for the next operator."""

    def _partitioned(self, partitioner: result_partition.Partitioner) -> StreamT:
        return self._environment.build_stream(self._partition_upstreams(partitioner), self._type_info)

    def rebalance(self) -> StreamT:
        """Distribute records evenly, round robin.

        Examples:
            >>> print(words.rebalance().map(str.upper).set_parallelism(2).explain())
            Penstock Streaming Job: 2 vertices, 2 slots
            [0] parallelism 1
                Collection Source (state)
            [1] parallelism 2
                <- [0] REBALANCE
                Map
        """
        return self._partitioned(result_partition.RebalancePartitioner())

    def rescale(self) -> StreamT:
        """Distribute records round robin within groups: each subtask of the side with fewer subtasks has its own group.

        From parallelism 2 to 4, the first subtask feeds the first two subtasks and the second feeds the others; from 4
        to 2, each of the two reads from its own two. This is cheaper than `rebalance`, but balances the load within a
        group only.
        """
        return self._partitioned(result_partition.RescalePartitioner())

    def shuffle(self) -> StreamT:
        """Send each record to a random subtask, uniformly. Each sender draws the same random numbers in every run."""
        return self._partitioned(result_partition.ShufflePartitioner())

    def partition_custom(
        self, partitioner: PartitionerFunction | Callable[[Any, int], int], key_selector: Any
    ) -> StreamT:
        """Send each record to the subtask that a `Partitioner`, or a function of (key, number of subtasks), returns."""
        selector: Callable[[Any], Any] = method(key_selector, "get_key")
        return self._partitioned(result_partition.CustomPartitioner(partitioner, selector))

    def forward(self) -> StreamT:
        """Send records from subtask i to subtask i; both sides must have the same parallelism."""
        return self._partitioned(result_partition.ForwardPartitioner())

    def global_(self) -> StreamT:
        """Send every record to the first subtask."""
        return self._partitioned(result_partition.GlobalPartitioner())


def projected_type(type_info: TypeInformation | None, indexes: Sequence[int]) -> TypeInformation | None:
    """Return the type with only the fields at these positions; None if the fields of the type are unknown.

    Raises:
        ValueError: if a position is beyond the type's last field.
    """
    if not isinstance(type_info, RowTypeInfo | TupleTypeInfo):
        return None
    types = type_info.get_field_types()
    if max(indexes) >= len(types):
        raise WrongValueError(f"{type_info} has {len(types)} fields, so there is none at position {max(indexes)}")
    chosen = [types[index] for index in indexes]
    if isinstance(type_info, TupleTypeInfo):
        return Types.TUPLE(chosen)
    names = type_info.get_field_names()
    if len(set(indexes)) < len(indexes):
        return Types.ROW(chosen)
    return Types.ROW_NAMED([names[index] for index in indexes], chosen)
