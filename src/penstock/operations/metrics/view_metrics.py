"""All metrics of one view of a job, each computed once, on first request."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

from penstock.base.configuration import Configuration
from penstock.base.metric_options import STATE_LATENCY_NAME_AS_VARIABLE
from penstock.base.options import MANAGED_MEMORY_BYTES, STATE_BACKEND
from penstock.core.job.view import SubtaskView, VertexView, WorkerView
from penstock.core.protocol import OperatorFigures
from penstock.operations.metrics.channels import NO_CHANNELS, ChannelMemory, channel_memory
from penstock.operations.metrics.jobs import job_metrics
from penstock.operations.metrics.processes import memory_metrics, process_metrics
from penstock.operations.metrics.rates import Rates
from penstock.operations.metrics.scopes import Histogram, Scope, Scoped, Value, flat, of_operator, spelled
from penstock.operations.metrics.tasks import SENT, counter_names, nothing_counted, operator_metrics, task_metrics
from penstock.operations.metrics.this_process import ThisProcess

_NO_WORKER: Final = "none"


class ViewMetrics:
    """See the module docstring.

    Args:
        rates: the rates between the view and an earlier one.
        rescales: the number of rescales of the job.
        driver: this process.
    """

    def __init__(self, rates: Rates, rescales: int, driver: ThisProcess) -> None:
        self.view = rates.view
        self._rates = rates
        self._rescales = rescales
        self._driver = driver
        self._subtasks: dict[tuple[int, int], tuple[Scoped, ...]] = {}
        self._listed: dict[int, dict[str, str | int | float]] = {}

    # --- as lists of names -----------------------------------------------------------------------------------------

    def subtask(self, vertex: VertexView, subtask: SubtaskView) -> dict[str, str | int | float]:
        """Return the metrics of a subtask and of its operators, prefixed with their names; zeros before it reports."""
        task, *operators = self.of_subtask(vertex, subtask) or self._made(vertex, nothing_counted(vertex, subtask))
        listed = flat(task.values)
        for operator in operators:
            name = operator.variables["operator_name"]
            listed.update((of_operator(name, spelled(operator, key)), of) for key, of in flat(operator.values).items())
        return listed

    def vertex(self, vertex: VertexView) -> dict[str, str | int | float]:
        """Return the metrics of all subtasks, each with the subtask's index as prefix."""
        if vertex.index not in self._listed:
            self._listed[vertex.index] = {
                f"{subtask.subtask}.{name}": value
                for subtask in vertex.subtasks
                for name, value in self.subtask(vertex, subtask).items()
            }
        return self._listed[vertex.index]

    # --- with scopes -----------------------------------------------------------------------------------------------

    @cached_property
    def job(self) -> Scoped:
        """The metrics of the job itself."""
        variables = {"host": self._driver.host, **self._of_job}
        return Scoped(Scope.JOB, variables, job_metrics(self.view, self._rescales))

    @cached_property
    def latency(self) -> tuple[Scoped, ...]:
        """The ages of latency markers at each operator, by subtask and, depending on the granularity, by source."""
        return tuple(
            scoped
            for vertex in self.view.vertices
            for subtask in vertex.subtasks
            if subtask.metrics is not None and subtask.metrics.figures is not None
            for operator in subtask.metrics.figures.operators
            for scoped in self._of_markers(subtask, operator)
        )

    @cached_property
    def workers(self) -> dict[str, Scoped]:
        """The metrics of its workers, by id."""
        return {
            worker.worker_id: Scoped(
                Scope.TASK_MANAGER, {"host": worker.host, "tm_id": worker.worker_id}, self._worker(worker)
            )
            for worker in self.view.workers
        }

    def of_subtask(self, vertex: VertexView, subtask: SubtaskView) -> tuple[Scoped, ...]:
        """Return the metrics of a subtask and then of its operators; empty before its first report."""
        key = vertex.index, subtask.subtask
        if key not in self._subtasks:
            self._subtasks[key] = tuple(self._made(vertex, subtask))
        return self._subtasks[key]

    def scoped(self) -> Iterator[Scoped]:
        """Yield all metrics."""
        yield self.job
        yield from self.workers.values()
        yield from self.latency
        for vertex in self.view.vertices:
            for subtask in vertex.subtasks:
                yield from self.of_subtask(vertex, subtask)

    @cached_property
    def _of_job(self) -> dict[str, str]:
        return {"job_id": self.view.job_id, "job_name": self.view.name}

    def _made(self, vertex: VertexView, subtask: SubtaskView) -> Iterator[Scoped]:
        metrics = subtask.metrics
        if metrics is None:
            return
        rates = self._rates.of_subtask(vertex.index, subtask)
        attempt = metrics.execution.attempt
        variables = {
            **self._of_job,
            **self._place(subtask),
            "task_id": vertex.vertex_id,
            "task_name": vertex.name,
            "task_attempt_id": f"{self.view.job_id}_{vertex.vertex_id}_{subtask.subtask}_{attempt}",
            "task_attempt_num": str(attempt),
            "subtask_index": str(subtask.subtask),
        }
        figures = metrics.figures
        users = counter_names(metrics) if figures is None else frozenset[str]()
        yield Scoped(Scope.TASK, variables, task_metrics(metrics, rates, vertex.is_source), users)
        if figures is None:
            return
        operators = {operator.operator_id: operator for operator in figures.operators}
        is_last = not any(edge.source == vertex.index for edge in self.view.edges)
        for info in vertex.infos:
            if (own := operators.get(info.operator_id)) is None:
                continue
            values = operator_metrics(vertex, info, own, figures, rates, self.view.now_ms)
            if is_last and info is vertex.infos[-1]:  # a sink
                values = {**SENT, "numRecordsSend": own.records_in, **values}
            named = {**variables, "operator_id": info.operator_id, "operator_name": info.name}
            yield Scoped(Scope.OPERATOR, named, values, counter_names(own))
            yield from self._of_state(named, own)

    def _place(self, subtask: SubtaskView) -> dict[str, str]:
        worker_id = subtask.worker_id or _NO_WORKER
        host = next((worker.host for worker in self.view.workers if worker.worker_id == worker_id), self._driver.host)
        return {"host": host, "tm_id": worker_id}

    def _of_markers(self, subtask: SubtaskView, figures: OperatorFigures) -> Iterator[Scoped]:
        operator = {"operator_id": figures.operator_id, "operator_subtask_index": str(subtask.subtask)}
        for source, ages in figures.latency.items():
            source_id, _, source_subtask = source.partition(".")
            of_source = {"source_id": source_id, "source_subtask_index": source_subtask}
            named = {key: value for key, value in of_source.items() if value} | operator
            variables = {**self._of_job, **self._place(subtask), **named}
            name = ".".join(["latency", *named, "latency"])
            yield Scoped(Scope.JOB_ON_TASK_MANAGER, variables, {name: Histogram.of(ages)})

    def _of_state(self, operator: dict[str, str], figures: OperatorFigures) -> Iterator[Scoped]:
        """Yield the access latencies of an operator's states, one state after the other."""
        by_state: dict[str, dict[str, Value]] = {}
        for name, times in figures.state_latency.items():
            state, _, metric = name.rpartition(".")
            by_state.setdefault(state, {})[metric] = Histogram.of(times)
        is_variable = bool(by_state) and self._configuration.read(STATE_LATENCY_NAME_AS_VARIABLE)
        for state, metrics in by_state.items():
            if is_variable:
                named = {f"state_name.{name}": value for name, value in metrics.items()}
                yield Scoped(Scope.OPERATOR, {**operator, "state_name": state}, named)
            else:
                yield Scoped(Scope.OPERATOR, operator, {f"{state}.{name}": value for name, value in metrics.items()})

    # --- workers ---------------------------------------------------------------------------------------------------

    def _worker(self, worker: WorkerView) -> dict[str, Value]:
        values: dict[str, Value] = {"Status.Penstock.Slow": worker.slow is not None}
        if worker.process_id == os.getpid() and worker.host in ("localhost", self._driver.host):
            values.update(process_metrics(*self._driver.figures()))
        elif worker.process is not None:
            known = [] if self._rates.base is None else self._rates.base.workers
            before = next((candidate.process for candidate in known if candidate.worker_id == worker.worker_id), None)
            total, earlier = worker.process.collections_ms, None if before is None else before.collections_ms
            values.update(process_metrics(worker.process, self._rates.of_process(total, earlier)))
        managed = self._managed_bytes
        used = managed if self._has_rocksdb else 0
        return {**values, **memory_metrics(used, managed, self._channels.get(worker.worker_id, NO_CHANNELS))}

    @cached_property
    def _managed_bytes(self) -> int:
        return self._configuration.read(MANAGED_MEMORY_BYTES) or 0

    @cached_property
    def _has_rocksdb(self) -> bool:
        return "rocksdb" in str(self._configuration.read(STATE_BACKEND)).lower()

    @cached_property
    def _configuration(self) -> Configuration:
        return Configuration.from_dict(self.view.configuration)

    @cached_property
    def _channels(self) -> Mapping[str, ChannelMemory]:
        return channel_memory(self.view)
