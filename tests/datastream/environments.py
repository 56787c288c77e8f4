"""Environments of the local driver, for tests of whole programs."""

from __future__ import annotations

from typing import Any

from penstock.base.configuration import Configuration
from penstock.datastream import StreamExecutionEnvironment


def local_environment(parallelism: int = 1, **options: Any) -> StreamExecutionEnvironment:
    """One that runs in this process; options with `__` in the place of dots and `_` in the place of hyphens."""
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    for key, value in options.items():
        configuration.set_string(key.replace("__", ".").replace("_", "-"), str(value))
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)


def collect(stream: Any) -> list[Any]:
    """All records of a stream."""
    with stream.execute_and_collect() as results:
        return list(results)
