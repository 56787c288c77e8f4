"""The base class of streams: the operator that produces a stream, its type, its environment, and adding operators."""

from __future__ import annotations

from typing import Generic

from penstock.base.errors import WrongTypeError
from penstock.base.execution_config import ExecutionConfig
from penstock.base.typeinfo import TypeInformation, Types
from penstock.core.task.channels.partitioners import Partitioner
from penstock.datastream.environment import Environment, StreamT
from penstock.datastream.operator_settings import OperatorSettings
from penstock.plan.description import Plan
from penstock.plan.nodes import Node, declared
from penstock.plan.transformation import Transformation, Upstream


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
        """Return the plan of this stream as text: tasks, the operators chained in each, and how records travel."""
        return self.plan().to_text()

    def _repr_html_(self) -> str:
        return self.plan().to_svg()

    @property
    def declared_type(self) -> TypeInformation | None:
        """The type of the records if the program declares it."""
        return self._type_info or self._upstreams[0].transformation.output_type

    def _partition_upstreams(self, partitioner: Partitioner) -> tuple[Upstream, ...]:
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
