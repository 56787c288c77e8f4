"""Splits a loop of a program into two programs: a prologue, computed once, and the step.

The step lies between the heads of the loop, which stand for the data at the start of a superstep, and the streams
passed to `close_with`. Streams from outside that the step reads do not change between supersteps. The *prologue*
computes them once, together with the initial data of the loop, and writes them to files. The *step* is a copy of the
loop's transformations. It reads these files in place of the heads and the outside streams, and writes its own result to
files. Drivers find all written data by its *role*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.cached import CachedSource, JobCachingSink
from penstock.plan.stream_graph import operator_id_of_uid
from penstock.plan.transformation import Transformation, Upstream, upstream_first
from penstock.runtime.connector import Boundedness
from penstock.runtime.operators.keyed.aggregates import KeyedMergeOperator
from penstock.runtime.operators.lockstep import TailOperator
from penstock.runtime.operators.record.stateless import PassOnOperator
from penstock.runtime.operators.sink.sink import SinkOperator
from penstock.runtime.operators.source.source import SourceOperator
from penstock.runtime.task.channels.partitioners import HashPartitioner

#: Roles of written data: of a bulk iteration, of a delta iteration, and of the termination criterion.
PARTIAL_SOLUTION: Final = "partial solution"
SOLUTION_SET: Final = "solution set"
WORKSET: Final = "workset"
TERMINATION: Final = "termination criterion"


class IterationHead(Transformation):
    """Stands for the data at the start of a superstep; it never becomes part of a job."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind, PassOnOperator)


@dataclass(frozen=True)
class LoopPrograms:
    """The programs that drivers run.

    `begins`: the roles that the prologue writes and supersteps replace; `kept`: the others.
    """

    prologue: list[Transformation]
    step: list[Transformation]
    begins: tuple[str, ...]
    kept: tuple[str, ...]


class LoopPlan:
    """A loop as the program defines it.

    Args:
        initial: role -> the streams with the initial data.
        heads: role -> the head that stands for the data in the step.
        results: role -> the step's result.
        key_selector: the key of the solution set, if there is one; the result of that role is then its delta.
    """

    def __init__(
        self,
        initial: Mapping[str, tuple[Upstream, ...]],
        heads: Mapping[str, IterationHead],
        results: Mapping[str, tuple[Upstream, ...]],
        key_selector: Callable[[Any], Any] | None = None,
    ) -> None:
        self._initial = initial
        self._heads = heads
        self._results = results
        self._key_selector = key_selector
        self._all = upstream_first(u.transformation for upstreams in results.values() for u in upstreams)
        self._inside = self._between()
        self._check_heads()

    @property
    def transformations(self) -> list[Transformation]:
        """All transformations of the program that the loop needs."""
        beginning = (u.transformation for upstreams in self._initial.values() for u in upstreams)
        return upstream_first([*beginning, *self._all])

    def _between(self) -> set[Transformation]:
        inside: set[Transformation] = set(self._heads.values())
        for transformation in self._all:
            if any(upstream.transformation in inside for upstream in transformation.inputs):
                inside.add(transformation)
        return inside

    def _check_heads(self) -> None:
        for transformation in self._all:
            if isinstance(transformation, IterationHead) and transformation not in self._inside:
                raise UnsupportedError(
                    f"a step reads data of {transformation.display_name!r}, which is another iteration: only the "
                    "result of close_with() leaves a loop, and loops cannot be nested"
                )

    def programs(self, directory: str) -> LoopPrograms:
        """Return the two programs; they write below `directory`, each role in its own directory."""
        invariants: dict[tuple[Transformation, str | None], str] = {}
        copies: dict[Transformation, Transformation] = {}
        for role, head in self._heads.items():
            copies[head] = _reader(role, head, head.parallelism)
        read: dict[str, Transformation] = {}

        def moved(upstream: Upstream) -> Upstream:
            of = upstream.transformation
            if of in self._inside:
                return replace(upstream, transformation=copies[of])
            role = invariants.setdefault((of, upstream.side_tag), f"input {len(invariants) + 1}: {of.display_name}")
            reader = read.get(role)
            if reader is None:
                reader = read[role] = _reader(role, of, _get_fixed_parallelism(of))
            return replace(upstream, transformation=reader, side_tag=None)

        for transformation in self._all:
            if transformation in self._inside and transformation not in copies:
                copies[transformation] = replace(transformation, inputs=tuple(map(moved, transformation.inputs)))
        step: list[Transformation] = []
        for role, upstreams in self._results.items():
            result = tuple(map(moved, upstreams))
            if role == SOLUTION_SET:
                before = Upstream(copies[self._heads[role]])
                result = (Upstream(self._merge((before,), result)),)
            step.append(_writer(role, result, directory))
        prologue = []
        for role, upstreams in self._initial.items():
            begin = (Upstream(self._merge(upstreams, ())),) if role == SOLUTION_SET else upstreams
            prologue.append(_writer(role, begin, directory))
        for (of, side_tag), role in invariants.items():
            writer = _writer(role, (Upstream(of, side_tag=side_tag),), directory, _get_fixed_parallelism(of))
            prologue.append(writer)
        return LoopPrograms(
            upstream_first(prologue), upstream_first(step), tuple(self._initial), tuple(invariants.values())
        )

    def _merge(self, solution: tuple[Upstream, ...], delta: tuple[Upstream, ...]) -> Transformation:
        assert self._key_selector is not None
        by_key = HashPartitioner(self._key_selector)
        inputs = [Upstream(u.transformation, by_key, u.side_tag) for u in solution]
        inputs += [Upstream(u.transformation, by_key, u.side_tag, 1) for u in delta]
        factory = partial(KeyedMergeOperator, self._key_selector)
        return Transformation("Solution Set", factory, tuple(inputs), is_stateful=True)


def operator_id_of_role(role: str) -> str:
    """Return the operator id of the source that reads the data of a role."""
    return operator_id_of_uid(f"penstock iteration: {role}")


def directory_of_role(directory: str, role: str) -> str:
    """Return the directory for the data of a role."""
    return f"{directory}/{role.partition(':')[0].replace(' ', '-')}"


def check_bounded(upstreams: Iterable[Upstream], operation: str) -> None:
    """Raise `ConfigurationError` if a source of the streams is unbounded; the error names `operation`."""
    for transformation in upstream_first(upstream.transformation for upstream in upstreams):
        source = transformation.source
        if source is not None and source.boundedness is not Boundedness.BOUNDED:
            raise ConfigurationError(
                f"{operation} works on bounded data only, but the source {transformation.display_name!r} never ends: "
                "bound "
                "it"
            )


def check_outside_of_loops(program: Iterable[Transformation]) -> None:
    """Raise `ConfigurationError` if a program other than a step reads the data of a superstep."""
    for transformation in program:
        for upstream in transformation.inputs:
            if isinstance(upstream.transformation, IterationHead):
                raise ConfigurationError(
                    f"{transformation.display_name!r} reads {upstream.transformation.display_name!r}, the data of a "
                    "superstep, but the loop was not closed, or its output is not part of what close_with() received: "
                    "a step has no sinks, and only the result of close_with() leaves a loop"
                )


def _get_fixed_parallelism(transformation: Transformation) -> int | None:
    """Return the parallelism for writing and reading a transformation's output as files.

    With it, writing needs no redistribution, and `forward()` from the files keeps its meaning.
    """
    return transformation.parallelism or (1 if transformation.parallelism_limit == 1 else None)


def _reader(role: str, of: Transformation, parallelism: int | None) -> Transformation:
    source = CachedSource("")  # a placeholder: each superstep has its own source with the same reader
    return Transformation(
        of.kind,
        partial(SourceOperator, source, WatermarkStrategy.no_watermarks()),
        name=of.name,
        uid=f"penstock iteration: {role}",
        parallelism=parallelism,
        max_parallelism=of.max_parallelism,
        is_stateful=True,
        source=source,
        output_type=of.output_type,
    )


def _writer(
    role: str, upstreams: tuple[Upstream, ...], directory: str, parallelism: int | None = None
) -> Transformation:
    of = {upstream.transformation for upstream in upstreams}
    if parallelism is None and len(of) == 1:
        parallelism = _get_fixed_parallelism(next(iter(of)))
    tail = Transformation("Iteration Tail", partial(TailOperator, role), upstreams, parallelism=parallelism)
    sink = JobCachingSink(directory_of_role(directory, role))
    factory = partial(SinkOperator, sink)
    inputs = (Upstream(tail),)
    return Transformation("Iteration Sink", factory, inputs, parallelism=parallelism, is_stateful=True, sink=sink)
