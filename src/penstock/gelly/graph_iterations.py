"""Graph methods that run user-defined functions of vertices superstep by superstep."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.gelly.base.elements import EdgeDirection
from penstock.gelly.base.graph_base import GraphBase
from penstock.gelly.base.lockstep import Input, by_id, in_step, to_all
from penstock.gelly.gsa.functions import (
    ApplyFunction,
    CalledApply,
    CalledGather,
    CalledSum,
    GatherFunction,
    GSAConfiguration,
    SumFunction,
)
from penstock.gelly.gsa.model import GatherSumApply
from penstock.gelly.pregel.functions import CalledCompute, ComputeFunction, VertexCentricConfiguration
from penstock.gelly.pregel.model import VertexCentric
from penstock.gelly.spargel import functions as spargel
from penstock.gelly.spargel.model import ScatterGather
from penstock.gelly.supersteps.configuration import IterationConfiguration
from penstock.gelly.supersteps.operator import (
    BROADCAST,
    BY_SOURCE,
    BY_TARGET,
    VERTICES,
    SuperstepOperator,
    SuperstepSettings,
)

Function = Any


class GraphIterations(GraphBase):
    """See the module docstring. Each method returns the graph with the final vertex values."""

    def run_vertex_centric_iteration(
        self,
        compute_function: Function,
        combiner: Function,
        maximum_number_of_iterations: int,
        parameters: VertexCentricConfiguration | None = None,
    ) -> Self:
        """Run a `pregel.ComputeFunction`, whose messages arrive in the next superstep.

        Args:
            compute_function: the function, or a callable of (function object, vertex, messages).
            combiner: a `pregel.MessageCombiner`, a callable that combines a list of messages into one, or None.
            maximum_number_of_iterations: the maximum number of supersteps.
            parameters: further settings.
        """
        compute = _function(compute_function, ComputeFunction, CalledCompute)
        configuration = _configuration(parameters, VertexCentricConfiguration)
        model = partial(VertexCentric, compute, combiner)
        return self._run(model, VertexCentric.name, maximum_number_of_iterations, configuration)

    def run_scatter_gather_iteration(
        self,
        scatter_function: Function,
        gather_function: Function,
        maximum_number_of_iterations: int,
        parameters: spargel.ScatterGatherConfiguration | None = None,
    ) -> Self:
        """Run a `spargel.ScatterFunction` and a `spargel.GatherFunction`, one after the other.

        Args:
            scatter_function: the function, or a callable of (function object, vertex).
            gather_function: the function, or a callable of (function object, vertex, messages).
            maximum_number_of_iterations: the maximum number of supersteps.
            parameters: further settings.
        """
        configuration = _configuration(parameters, spargel.ScatterGatherConfiguration)
        model = partial(
            ScatterGather,
            _function(scatter_function, spargel.ScatterFunction, spargel.CalledScatter),
            _function(gather_function, spargel.GatherFunction, spargel.CalledGather),
            configuration.wants_degrees,
        )
        return self._run(model, ScatterGather.name, maximum_number_of_iterations, configuration)

    def run_gather_sum_apply_iteration(
        self,
        gather_function: Function,
        sum_function: Function,
        apply_function: Function,
        maximum_number_of_iterations: int,
        parameters: GSAConfiguration | None = None,
    ) -> Self:
        """Run a `gsa.GatherFunction`, a `gsa.SumFunction` and a `gsa.ApplyFunction`.

        Args:
            gather_function: the function, or a callable of a `gsa.Neighbor`.
            sum_function: the function, or a callable of two values.
            apply_function: the function, or a callable of the new and the current value that returns None for no
                change.
            maximum_number_of_iterations: the maximum number of supersteps.
            parameters: further settings.
        """
        configuration = _configuration(parameters, GSAConfiguration)
        model = partial(
            GatherSumApply,
            _function(gather_function, GatherFunction, CalledGather),
            _function(sum_function, SumFunction, CalledSum),
            _function(apply_function, ApplyFunction, CalledApply),
        )
        return self._run(model, GatherSumApply.name, maximum_number_of_iterations, configuration)

    def _run(self, model: Any, kind: str, max_iterations: int, configuration: IterationConfiguration) -> Self:
        if max_iterations < 0:
            raise WrongValueError(f"the maximum number of iterations must be 0 or more, not {max_iterations}")
        direction, with_degrees = configuration.direction, configuration.wants_degrees
        inputs = [Input(self._vertices, by_id(0), VERTICES)]
        if direction is not EdgeDirection.IN or with_degrees:
            inputs.append(Input(self._edges, by_id(0), BY_SOURCE))
        if direction is not EdgeDirection.OUT or with_degrees:
            inputs.append(Input(self._edges, by_id(1), BY_TARGET))
        for number, stream in enumerate(configuration.broadcast.values()):
            inputs.append(Input(stream, to_all(), BROADCAST + number))
        name = configuration.get_name(kind)
        operator = partial(SuperstepOperator, model, SuperstepSettings.of(name, configuration, max_iterations))
        return self._replace_streams(vertices=in_step(operator, inputs, name, configuration.parallelism))


def _configuration(parameters: Any, kind: type) -> Any:
    if parameters is None:
        return kind()
    if not isinstance(parameters, kind):
        raise WrongTypeError(f"the parameters must be a {kind.__name__}, not {type(parameters).__name__}")
    return parameters


def _function(function: Any, kind: type, called: Any) -> Any:
    if isinstance(function, kind):
        return function
    if callable(function):
        return called(function)
    raise WrongTypeError(f"{function!r} is neither a {kind.__name__} nor a callable")
