"""The base of reporters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

from penstock.base.errors import ConfigurationError
from penstock.operations.metrics.scopes import Scoped
from penstock.operations.reporters.settings import ReporterSettings


@dataclass(frozen=True)
class Span:
    """An activity of a job that took time.

    Attributes:
        scope: its owner, as a Flink scope.
        name: its name: `Checkpoint` or `JobInitialization`.
        began_ms: when it began (ms since the epoch).
        ended_ms: when it ended (ms since the epoch).
        attributes: further details.
    """

    scope: str
    name: str
    began_ms: int
    ended_ms: int
    attributes: dict[str, str | int]


class Reporter(ABC):
    """Sends metrics or spans at its interval. Exceptions are logged once, and it continues."""

    def __init__(self, settings: ReporterSettings) -> None:
        self.settings = settings

    @abstractmethod
    def report(self, metrics: Iterable[Scoped], spans: Sequence[Span]) -> None:
        """Send the metrics or spans that it handles."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release its resources."""


def taken(settings: ReporterSettings, metrics: Iterable[Scoped]) -> Iterator[Scoped]:
    """Yield the metrics that a reporter accepts, with the variables that it wants."""
    excluded, additional, takes = settings.excluded, settings.additional, settings.filter.takes
    for scoped in metrics:
        values = {name: value for name, value in scoped.values.items() if takes(scoped, name, value)}
        if not values:
            continue
        variables = scoped.variables
        if excluded or additional:
            variables = {**{name: v for name, v in variables.items() if name not in excluded}, **additional}
        yield replace(scoped, variables=variables, values=values)


def require(module: str, settings: ReporterSettings, extra: str) -> None:
    """Check that a library is installed that only this reporter needs.

    Raises:
        ConfigurationError: with an installation hint, if it is missing.
    """
    try:
        is_there = find_spec(module) is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there:
        raise ConfigurationError(
            f"{settings.what}.reporter.{settings.name} needs the library {module.partition('.')[0]}: "
            f"pip install 'penstock[{extra}]'"
        )
