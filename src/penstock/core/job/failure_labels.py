"""Labels from failure enrichers, requested in the background and merged when they arrive.

An enricher is user code, and may hang or raise. So each enricher handles one failure at a time, and until it has
answered, a few later failures wait for it. The job never waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.core.effects import Effects
from penstock.core.failure import FailureEnricherContext, FailureType, Labels
from penstock.core.job.history import FAILURES_MAX, JobHistory
from penstock.core.ports import Clock

#: How long (ms) an enricher may take before the log names it.
PATIENCE_MS: Final = 30_000


class Labeller(Protocol):
    """An enricher, as its callers see it."""

    @property
    def name(self) -> str:
        """The name of its class."""
        ...

    def label(self, cause: BaseException, context: FailureEnricherContext) -> tuple[Labels, str | None]:
        """Return the labels of a failure, and a complaint about ignored labels, if any; raise if the enricher does.

        It runs user code, so it belongs in `Background`.
        """
        ...


@dataclass
class _Asked:
    """An enricher, and the failures that it has not been asked about yet."""

    labeller: Labeller
    waiting: deque[tuple[int, BaseException, FailureEnricherContext]] = field(
        default_factory=lambda: deque(maxlen=FAILURES_MAX)
    )
    #: since when (ms) it has been at work
    since_ms: int | None = None
    is_named: bool = False


class FailureLabels:
    """Requests labels from a job's enrichers, and adds them to the job's history."""

    def __init__(
        self,
        labellers: Iterable[Labeller],
        job_id: str,
        job_name: str,
        history: JobHistory,
        effects: Effects,
        clock: Clock,
    ) -> None:
        self._asked = [_Asked(labeller) for labeller in labellers]
        self._job_id = job_id
        self._job_name = job_name
        self._history = history
        self._effects = effects
        self._clock = clock

    def on_failure(self, number: int, cause: BaseException | None, failure_type: FailureType) -> None:
        """Request labels for a failure that was recorded under a number."""
        if cause is None:
            return
        context = FailureEnricherContext(self._job_id, self._job_name, failure_type)
        for enricher in self._asked:
            enricher.waiting.append((number, cause, context))
            self._ask(enricher)

    def _ask(self, enricher: _Asked) -> None:
        now_ms, name = self._clock.steady_ms(), enricher.labeller.name
        if enricher.since_ms is not None:
            if now_ms - enricher.since_ms >= PATIENCE_MS and not enricher.is_named:
                enricher.is_named = True
                self._effects.log(f"failure enricher {name} has not answered for {now_ms - enricher.since_ms} ms")
            return
        if not enricher.waiting:
            return
        number, cause, context = enricher.waiting.popleft()
        enricher.since_ms, enricher.is_named = now_ms, False

        def done(answer: tuple[Labels, str | None] | None, error: BaseException | None) -> None:
            enricher.since_ms = None
            labels, complaint = answer or ({}, f"{type(error).__name__}: {error}")
            if complaint is not None:
                self._effects.log(f"failure enricher {name}: {complaint}")
            self._history.labelled(number, labels)
            self._ask(enricher)

        self._effects.run(lambda: enricher.labeller.label(cause, context), done)
