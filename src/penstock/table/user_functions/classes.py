"""The base classes of user-defined functions, and the context that they run in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from penstock.base.metrics import MetricGroup


class FunctionContext:
    """A function's view of the subtask that runs it. Flink: "User-defined Functions", runtime integration."""

    def __init__(
        self,
        base_metric_group: MetricGroup,
        job_parameters: Mapping[str, str],
        task_name: str | None = None,
        task_name_with_subtasks: str | None = None,
        number_of_parallel_subtasks: int | None = None,
        max_number_of_parallel_subtasks: int | None = None,
        index_of_this_subtask: int | None = None,
        attempt_number: int | None = None,
    ) -> None:
        self._metric_group = base_metric_group
        self._job_parameters = job_parameters
        self._task_name = task_name
        self._task_name_with_subtasks = task_name_with_subtasks
        self._number_of_parallel_subtasks = number_of_parallel_subtasks
        self._max_number_of_parallel_subtasks = max_number_of_parallel_subtasks
        self._index_of_this_subtask = index_of_this_subtask
        self._attempt_number = attempt_number

    def get_metric_group(self) -> MetricGroup:
        """Return the group in which the function registers its metrics."""
        return self._metric_group

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return one of the program's own settings (`pipeline.global-job-parameters`), or the default."""
        return self._job_parameters.get(key, default_value)

    def get_task_name(self) -> str | None:
        """Return the name of the task."""
        return self._task_name

    def get_task_name_with_subtasks(self) -> str | None:
        """Return the task's name with the subtask's number from 1, as in `Calc (2/4)`."""
        return self._task_name_with_subtasks

    def get_number_of_parallel_subtasks(self) -> int | None:
        """Return the parallelism of the operator that runs the function."""
        return self._number_of_parallel_subtasks

    def get_max_number_of_parallel_subtasks(self) -> int | None:
        """Return the maximum parallelism: the number of key groups."""
        return self._max_number_of_parallel_subtasks

    def get_index_of_this_subtask(self) -> int | None:
        """Return the index of this subtask, from 0."""
        return self._index_of_this_subtask

    def get_attempt_number(self) -> int | None:
        """Return how many times this subtask was started before."""
        return self._attempt_number


class UserDefinedFunction:
    """The base class of all user-defined functions. Each subtask has its own copy."""

    def open(self, function_context: FunctionContext) -> None:
        """Called once in each subtask, before the first row."""

    def close(self) -> None:
        """Called once in each subtask where `open` was called, after the last row or a failure."""

    def is_deterministic(self) -> bool:
        """Return whether the same operands always give the same result, so that calls may be skipped.

        True by default.
        """
        return True


class ScalarFunction(UserDefinedFunction, ABC):
    """Returns one value for each row. Flink: "Scalar Functions"."""

    @abstractmethod
    def eval(self, *args: Any) -> Any:
        """Return the value for these operands; NULL is None."""


class AsyncScalarFunction(UserDefinedFunction, ABC):
    """Returns one value for each row asynchronously; the calls of a batch run concurrently.

    Flink: "Asynchronous Scalar Functions". The options `table.exec.async-scalar.*` set the number of concurrent calls,
    the timeout of a call, and the number of attempts.
    """

    @abstractmethod
    async def eval(self, *args: Any) -> Any:
        """Return the value for these operands; NULL is None."""


class TableFunction(UserDefinedFunction, ABC):
    """Returns any number of rows for each row. Flink: "Table Functions"."""

    @abstractmethod
    def eval(self, *args: Any) -> Any:
        """Return a list, range or iterator of rows, one row, or None. A row is a tuple, a `Row` or the value of its
        column.
        """


class Delegating:
    """Wraps a plain function as an object with `eval`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.eval = function
