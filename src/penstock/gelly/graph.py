"""`Graph`: vertices and edges as bounded streams, with their operations, iterations and validators.

`GraphIterations` has the methods that run user-defined functions of vertices superstep by superstep. `Graph.validate`
takes a validator such as `InvalidVertexIdsValidator`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Self, TypeVar

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.datastream.data_stream import DataStream, StreamExecutionEnvironment
from penstock.gelly import base, gsa, spargel, supersteps
from penstock.gelly.csv_reader import GraphCsvReader
from penstock.gelly.graph_transformations import GraphChanges, GraphValues, Neighbourhoods, extract_vertices
from penstock.gelly.pregel import CalledCompute, ComputeFunction, VertexCentric, VertexCentricConfiguration
from penstock.gelly.spargel import ScatterGather

Function = Any


class GraphIterations(base.GraphBase):
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
        parameters: gsa.GSAConfiguration | None = None,
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
        configuration = _configuration(parameters, gsa.GSAConfiguration)
        model = partial(
            gsa.GatherSumApply,
            _function(gather_function, gsa.GatherFunction, gsa.CalledGather),
            _function(sum_function, gsa.SumFunction, gsa.CalledSum),
            _function(apply_function, gsa.ApplyFunction, gsa.CalledApply),
        )
        return self._run(model, gsa.GatherSumApply.name, maximum_number_of_iterations, configuration)

    def _run(
        self, model: Any, kind: str, max_iterations: int, configuration: supersteps.IterationConfiguration
    ) -> Self:
        if max_iterations < 0:
            raise WrongValueError(f"the maximum number of iterations must be 0 or more, not {max_iterations}")
        direction, with_degrees = configuration.direction, configuration.wants_degrees
        inputs = [base.Input(self._vertices, base.by_id(0), supersteps.VERTICES)]
        if direction is not base.EdgeDirection.IN or with_degrees:
            inputs.append(base.Input(self._edges, base.by_id(0), supersteps.BY_SOURCE))
        if direction is not base.EdgeDirection.OUT or with_degrees:
            inputs.append(base.Input(self._edges, base.by_id(1), supersteps.BY_TARGET))
        for number, stream in enumerate(configuration.broadcast.values()):
            inputs.append(base.Input(stream, base.to_all(), supersteps.BROADCAST + number))
        name = configuration.get_name(kind)
        operator = partial(
            supersteps.SuperstepOperator, model, supersteps.SuperstepSettings.of(name, configuration, max_iterations)
        )
        return self._replace_streams(vertices=base.in_step(operator, inputs, name, configuration.parallelism))


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


T = TypeVar("T")


class Graph(GraphIterations, Neighbourhoods, GraphChanges, GraphValues):
    """A directed graph with values at vertices and edges.

    Each method returns a new graph or a stream, and nothing runs until a job reads it. Methods that return a number or
    a bool run a job. An undirected graph has each edge in both directions, see `get_undirected`.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Edge, Graph
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([Edge("A", "B", 4.0), Edge("A", "C", 1.0)], env)
        >>> graph.number_of_vertices(), sorted(graph.out_degrees().collect())
        (3, [('A', 2), ('B', 0), ('C', 0)])
    """

    @staticmethod
    def from_collection(
        edges: Iterable[Any],
        context: StreamExecutionEnvironment,
        vertices: Iterable[Any] | None = None,
        vertex_value_initializer: Any = None,
    ) -> Graph:
        """Create a graph from collections.

        Args:
            edges: `Edge`s, or tuples (source, target, value) or (source, target).
            context: the environment.
            vertices: `Vertex`s, or tuples (id, value). By default the vertices of the edges, with value None.
            vertex_value_initializer: computes the values of the edges' vertices from their ids.

        Raises:
            ValueError: if both vertices and an initializer are given.

        Examples:
            >>> ages = Graph.from_collection([("A", "B")], env, vertices=[("A", 30), ("B", 40)])
            >>> sorted(ages.get_vertices().collect())
            [Vertex(id='A', value=30), Vertex(id='B', value=40)]
        """
        vertex_stream = (
            None if vertices is None else context.from_collection([base.Vertex(*vertex) for vertex in vertices])
        )
        edge_stream = context.from_collection([base.Edge(*edge) for edge in edges])
        return _build_graph(edge_stream, vertex_stream, vertex_value_initializer)

    @staticmethod
    def from_data_stream(
        edges: DataStream, vertices: DataStream | None = None, vertex_value_initializer: Any = None
    ) -> Graph:
        """Create a graph from streams of `Edge`s and `Vertex`s; see `from_collection`."""
        return _build_graph(edges, vertices, vertex_value_initializer)

    @staticmethod
    def from_tuple_data_stream(
        edges: DataStream, vertices: DataStream | None = None, vertex_value_initializer: Any = None
    ) -> Graph:
        """Create a graph from streams of tuples (source, target, value) and (id, value). Rows also work."""
        return _graph_of_tuples(edges, vertices, vertex_value_initializer, _edge)

    @staticmethod
    def from_tuple2_data_stream(
        edges: DataStream, vertices: DataStream | None = None, vertex_value_initializer: Any = None
    ) -> Graph:
        """Create a graph from streams of tuples (source, target) and (id, value). Its edges have no values."""
        return _graph_of_tuples(edges, vertices, vertex_value_initializer, _edge_without_value)

    @staticmethod
    def from_csv_reader(
        edges_path: str,
        context: StreamExecutionEnvironment,
        vertices_path: str | None = None,
        vertex_value_initializer: Any = None,
    ) -> GraphCsvReader:
        """Return a reader of text files. Set types with `types`, `edge_types`, `vertex_types` or `key_type`.

        Args:
            edges_path: a file, or a directory of files.
            context: the environment.
            vertices_path: the file or directory of the vertices. By default they are the vertices of the edges.
            vertex_value_initializer: computes the values of the edges' vertices from their ids.
        """
        return GraphCsvReader(edges_path, context, vertices_path, vertex_value_initializer, _build_graph)

    # --- algorithms --------------------------------------------------------------------------------------------------

    def run(self, algorithm: base.GraphAlgorithm[T] | base.GraphAnalytic[T]) -> Any:
        """Run an algorithm and return its result, a graph or a stream. Return an analytic itself, to `execute`.

        Examples:
            >>> from penstock.gelly.library import ConnectedComponents
            >>> numbered = Graph.from_collection([(1, 2), (8, 9)], env, vertex_value_initializer=int)
            >>> sorted(map(tuple, numbered.run(ConnectedComponents(10)).collect()))
            [(1, 1), (2, 1), (8, 8), (9, 8)]
        """
        return base.run_algorithm(algorithm, self)

    def validate(self, validator: base.GraphValidator) -> bool:
        """Return whether the graph passes a validator. Runs a job."""
        return validator.validate(self)

    def __repr__(self) -> str:
        return f"Graph({self._vertices.get_name()!r}, {self._edges.get_name()!r})"


def _build_graph(
    edges: DataStream, vertices: DataStream | None, initializer: Any, origin: base.Origin | None = None
) -> Graph:
    base.check_stream(edges, "the edges")
    if vertices is None:
        vertices = extract_vertices(edges, initializer)
        origin = origin or base.Origin(edges, None, initializer)
    elif initializer is not None:
        raise WrongValueError("vertex_value_initializer: the vertices are given, and have values; use map_vertices")
    else:
        base.check_stream(vertices, "the vertices")
    return Graph(vertices, edges, edges.get_execution_environment(), origin)


def _graph_of_tuples(
    edges: DataStream, vertices: DataStream | None, initializer: Any, edge_of: Callable[[Any], base.Edge]
) -> Graph:
    origin = base.Origin(base.check_stream(edges, "the edges"), vertices, initializer)
    vertex_stream = (
        None if vertices is None else base.check_stream(vertices, "the vertices").map(_vertex).name("Vertices")
    )
    return _build_graph(edges.map(edge_of).name("Edges"), vertex_stream, initializer, origin)


def _vertex(record: Any) -> base.Vertex:
    return base.Vertex(*record)


def _edge(record: Any) -> base.Edge:
    return base.Edge(*record)


def _edge_without_value(record: Any) -> base.Edge:
    return base.Edge(record[0], record[1], None)


class InvalidVertexIdsValidator(base.GraphValidator):
    """Checks that both ends of every edge are vertices of the graph.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph, InvalidVertexIdsValidator
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([("A", "B")], env, vertices=[("A", 1)])
        >>> graph.validate(InvalidVertexIdsValidator())
        False
    """

    def validate(self, graph: base.GraphBase) -> bool:
        """Return whether the graph is valid. Runs a job."""
        ids = graph.get_edges().flat_map(_get_endpoint_ids).name("Edge Ids")
        missing = base.without(ids, graph.get_vertices(), _itself, base.FIRST).name("Missing Vertices")
        return not missing.execute_and_collect("Validate vertex ids", 1)


def _itself(value: Any) -> Any:
    return value


def _get_endpoint_ids(edge: Any) -> list[Any]:
    return [edge[0], edge[1]]
