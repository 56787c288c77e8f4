"""Loops over bounded data: bulk and delta iterations, as in Flink's DataSet API (A2, I3).

    ranks = pages.iterate(20)
    sums = links.connect(ranks) ...
    result = ranks.close_with(sums.map(...))

A *superstep* takes the result of the previous one and produces the input of the next one. Between `iterate` and
`close_with`, streams represent the data of one superstep. The operations on them form the *step*. It is written once
and runs as a batch job in every superstep, whatever the execution mode of the program. The result is a bounded stream.
The supersteps run when a job that reads the result starts, and only once for all jobs of the program.

A step may read other bounded streams, such as a broadcast stream. They are computed once, before the first superstep. A
step cannot contain sinks or other loops, but loops may follow one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Self

from penstock.base.accumulators import Aggregator, ConvergenceCriterion
from penstock.base.errors import UnsupportedError, WrongTypeError, WrongValueError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.datastream.environment import Environment, StreamT
from penstock.datastream.stream import Stream
from penstock.drivers.client.iterations import Iteration, IterationSource, LoopRules
from penstock.plan import job_graph
from penstock.plan.transformation import Upstream, upstream_first
from penstock.runtime.operators.record.stateless import method


class _Loop(Generic[StreamT]):
    """The common part of bulk and delta iterations."""

    def __init__(
        self,
        environment: Environment[StreamT],
        kind: str,
        initial: Mapping[str, Stream[StreamT]],
        max_iterations: int,
    ) -> None:
        if max_iterations < 0:
            raise WrongValueError(f"the maximum number of iterations must be 0 or more, not {max_iterations}")
        for stream in initial.values():
            _check_outside(stream)
            job_graph.check_bounded(stream.upstreams, "an iteration")
        self.environment = environment
        self.initial = initial
        self.rules = LoopRules(kind, max_iterations)
        self.heads = {role: job_graph.IterationHead(f"{kind} {role.title()}") for role in initial}
        self.is_closed = False

    def build_stream(self, role: str) -> tuple[Upstream, ...]:
        """Return the upstreams that represent the data of this role in the step."""
        return (Upstream(self.heads[role]),)

    def register(self, name: str, aggregator: Aggregator[Any]) -> None:
        """Register an aggregator."""
        if not isinstance(aggregator, Aggregator):
            raise WrongTypeError(f"{aggregator!r} is not an Aggregator; see penstock.base.accumulators")
        if name in self.rules.aggregators:
            raise WrongValueError(f"iteration {self.rules.name!r} already has an aggregator {name!r}")
        self.rules.aggregators[name] = aggregator

    def register_criterion(self, name: str, aggregator: Aggregator[Any], criterion: Any) -> None:
        """Register an aggregator whose value can end the loop."""
        if not isinstance(criterion, ConvergenceCriterion):
            raise WrongTypeError(f"{criterion!r} is not a ConvergenceCriterion; see penstock.base.accumulators")
        if self.rules.criterion is not None:
            raise WrongValueError(
                f"iteration {self.rules.name!r} already has a convergence criterion, of aggregator "
                f"{self.rules.criterion[0]!r}; it can have only one"
            )
        self.register(name, aggregator)
        self.rules.criterion = (name, criterion)

    def close(
        self,
        results: Mapping[str, Stream[StreamT]],
        result: str,
        goes_on: str | None,
        key_selector: Callable[[Any], Any] | None = None,
    ) -> StreamT:
        """Close the loop and return the stream of its result."""
        if self.is_closed:
            raise WrongValueError(f"iteration {self.rules.name!r} is already closed")
        upstreams = {role: stream.upstreams for role, stream in results.items()}
        initial = {role: stream.upstreams for role, stream in self.initial.items()}
        plan = job_graph.LoopPlan(initial, self.heads, upstreams, key_selector)
        everything = plan.transformations
        job_graph.check_bounded(map(Upstream, everything), f"iteration {self.rules.name!r}")
        self.is_closed = True
        self.environment.leave_out(everything)
        source = IterationSource(Iteration(plan, self.rules, result, goes_on))
        kind = results[result].declared_type or self.initial[result].declared_type
        return self.environment.from_source(source, WatermarkStrategy.no_watermarks(), self.rules.name, kind)


class BulkLoop(Stream[StreamT]):
    """The data at the start of a superstep of a bulk iteration."""

    def __init__(self, stream: Stream[StreamT], max_iterations: int) -> None:
        environment = stream.get_execution_environment()
        self._loop = _Loop(environment, "Bulk Iteration", {job_graph.PARTIAL_SOLUTION: stream}, max_iterations)
        super().__init__(environment, self._loop.build_stream(job_graph.PARTIAL_SOLUTION), stream.declared_type)

    def name(self, name: str) -> Self:
        """Set the name of the iteration in plans, logs and errors."""
        self._loop.rules.name = name
        return super().name(name)

    def uid(self, uid: str) -> Self:
        """Raise `NotImplementedError`: savepoints contain no superstep input. Set the uid on `close_with`'s result."""
        raise UnsupportedError(f"uid {uid!r}: set it on the result of close_with()")

    def set_uid_hash(self, uid_hash: str) -> Self:
        """Raise `NotImplementedError`, like `uid`."""
        raise UnsupportedError(f"uid hash {uid_hash!r}: set it on the result of close_with()")

    def get_max_iterations(self) -> int:
        """Return the maximum number of supersteps."""
        return self._loop.rules.max_iterations

    def register_aggregator(self, name: str, aggregator: Aggregator[Any]) -> Self:
        """Register an aggregator for the functions of the step (`RuntimeContext.get_iteration_aggregator`).

        Raises:
            ValueError: if there is already an aggregator of that name.
        """
        self._loop.register(name, aggregator)
        return self

    def register_aggregation_convergence_criterion(
        self, name: str, aggregator: Aggregator[Any], convergence_check: ConvergenceCriterion[Any]
    ) -> Self:
        """Register an aggregator, and end the iteration when its value after a superstep meets the criterion.

        Raises:
            ValueError: if there is already an aggregator of that name, or another criterion.
        """
        self._loop.register_criterion(name, aggregator, convergence_check)
        return self

    def close_with(
        self, iteration_result: Stream[StreamT], termination_criterion: Stream[StreamT] | None = None
    ) -> StreamT:
        """Close the step with the input of the next superstep. After the last superstep, this is the result.

        The last superstep is the one that reaches the maximum number, produces no record in the termination criterion,
        or meets the convergence criterion.

        Args:
            iteration_result: the result of a superstep.
            termination_criterion: a stream of the step; the superstep is the last one if this stream is empty.

        Raises:
            ConfigurationError: if the step reads an unbounded stream.
            NotImplementedError: if the step reads the data of another loop.
        """
        results = {job_graph.PARTIAL_SOLUTION: iteration_result}
        if termination_criterion is not None:
            results[job_graph.TERMINATION] = termination_criterion
        goes_on = None if termination_criterion is None else job_graph.TERMINATION
        return self._loop.close(results, job_graph.PARTIAL_SOLUTION, goes_on)


class DeltaLoop(Generic[StreamT]):
    """A delta iteration: a workset, and a solution set that each superstep updates in part."""

    def __init__(
        self,
        initial_solution_set: Stream[StreamT],
        initial_workset: Stream[StreamT],
        max_iterations: int,
        key_selector: Any,
    ) -> None:
        self._key_selector: Callable[[Any], Any] = method(key_selector, "get_key")
        self._loop = _Loop(
            initial_solution_set.get_execution_environment(),
            "Delta Iteration",
            {job_graph.SOLUTION_SET: initial_solution_set, job_graph.WORKSET: initial_workset},
            max_iterations,
        )

    def _stream(self, role: str) -> StreamT:
        loop = self._loop
        return loop.environment.build_stream(loop.build_stream(role), loop.initial[role].declared_type)

    @property
    def solution_set(self) -> StreamT:
        """The solution set at the start of a superstep: one record per key."""
        return self._stream(job_graph.SOLUTION_SET)

    @property
    def workset(self) -> StreamT:
        """The workset at the start of a superstep."""
        return self._stream(job_graph.WORKSET)

    def get_solution_set(self) -> StreamT:
        """Return the solution set at the start of a superstep: one record per key."""
        return self.solution_set

    def get_workset(self) -> StreamT:
        """Return the workset at the start of a superstep."""
        return self.workset

    def get_max_iterations(self) -> int:
        """Return the maximum number of supersteps."""
        return self._loop.rules.max_iterations

    def name(self, name: str) -> Self:
        """Set the name of the iteration in plans, logs and errors."""
        self._loop.rules.name = name
        return self

    def register_aggregator(self, name: str, aggregator: Aggregator[Any]) -> Self:
        """Register an aggregator for the functions of the step; see `IterativeStream.register_aggregator`."""
        self._loop.register(name, aggregator)
        return self

    def register_aggregation_convergence_criterion(
        self, name: str, aggregator: Aggregator[Any], convergence_check: ConvergenceCriterion[Any]
    ) -> Self:
        """Register an aggregator, and end the iteration when its value meets the criterion, whatever the workset."""
        self._loop.register_criterion(name, aggregator, convergence_check)
        return self

    def close_with(self, solution_set_delta: Stream[StreamT], new_workset: Stream[StreamT]) -> StreamT:
        """Close the step, and return the stream of the solution set after the last superstep.

        Args:
            solution_set_delta: the records that replace the solution set's records of the same key; of several records
                of one key, the last one counts.
            new_workset: the workset of the next superstep.

        Raises:
            ConfigurationError: if the step reads an unbounded stream.
            NotImplementedError: if the step reads the data of another loop.
        """
        results = {job_graph.SOLUTION_SET: solution_set_delta, job_graph.WORKSET: new_workset}
        return self._loop.close(results, job_graph.SOLUTION_SET, job_graph.WORKSET, self._key_selector)


def _check_outside(stream: Stream[StreamT]) -> None:
    for transformation in upstream_first(upstream.transformation for upstream in stream.upstreams):
        if isinstance(transformation, job_graph.IterationHead):
            raise UnsupportedError(
                f"a loop cannot begin with {transformation.display_name!r}, the data of another loop's superstep: "
                "loops cannot be nested, but one can follow another"
            )
