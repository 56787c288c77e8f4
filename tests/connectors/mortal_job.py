"""A job that is killed at chosen steps, for sinks on models of their systems."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def chunks(values: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


class Killed(Exception):
    """A job ends as by kill -9."""


class MortalJob:
    """A job of one source and `parallelism` writers with checkpoints, killed at the steps in `deaths`.

    Ahead of each checkpoint it takes a savepoint. A subclass says what an attempt does.
    """

    def __init__(self, records: int, deaths: set[int], parallelisms: list[int]) -> None:
        self.records = records
        self.deaths = deaths
        self.parallelisms = parallelisms
        self.calls = 0
        #: The last snapshot that was begun.
        self.number = 0
        # Completed checkpoint: its number, position of the source, writer states, committables by subtask.
        self.checkpoint: tuple[int, int, list[Any], list[list[Any]]] = (0, 0, [], [])
        #: What each savepoint that was taken holds.
        self.savepoints: list[list[Any]] = []

    def step(self) -> None:
        self.calls += 1
        if self.calls in self.deaths:
            raise Killed

    def run(self) -> None:
        attempt = 0
        while True:
            try:
                self.attempt(attempt, self.parallelisms[attempt % len(self.parallelisms)])
                return
            except Killed:
                attempt += 1

    def attempt(self, attempt: int, parallelism: int) -> None:
        raise NotImplementedError
