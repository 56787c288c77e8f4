"""The failure enrichers that the configuration names: importing, creating and calling them; coroutines are awaited.

`named_object` loads the class or function that any option names.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Mapping
from typing import Any

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, ContractError, UserFunctionError
from penstock.base.options import FAILURE_ENRICHERS
from penstock.runtime.failure import FailureEnricher, FailureEnricherContext, FailureType, Labels
from penstock.runtime.job.view import FAILURES_MAX, JobHistory


def named_object(module_name: str, name: str) -> Any:
    """Import a module and return its attribute of this name, which may have dots. Import errors propagate."""
    value: Any = importlib.import_module(module_name)
    for part in name.split("."):
        value = getattr(value, part)
    return value


_log = logging.getLogger("penstock.job")


class EnricherLabeller:
    """An enricher together with the rules for its labels; see `runtime.job.failover.Labeller`."""

    def __init__(self, enricher: FailureEnricher) -> None:
        self._enricher = enricher
        self.name = f"{type(enricher).__module__}.{type(enricher).__qualname__}"
        self.keys = frozenset(enricher.get_output_keys())

    def label(self, cause: BaseException, context: FailureEnricherContext) -> tuple[Labels, str | None]:
        """Call the enricher, and keep the labels whose keys it declared."""
        answer = self._enricher.process_failure(cause, context)
        labels = asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer
        if not isinstance(labels, Mapping):
            raise ContractError(f"process_failure must return a dict of labels, not {type(labels).__name__}")
        ignored = sorted(str(key) for key in labels if key not in self.keys)
        complaint = f"labels {ignored} are ignored: get_output_keys gives {sorted(self.keys)}" if ignored else None
        return {key: str(value) for key, value in labels.items() if key in self.keys}, complaint


async def _awaited(labels: Awaitable[Labels]) -> Labels:
    return await labels


def failure_enrichers(configuration: Configuration) -> list[EnricherLabeller]:
    """Create one instance of each enricher in `jobmanager.failure-enrichers`.

    Raises:
        ConfigurationError: if one cannot be created, or two share a key.
    """
    paths = [path.strip() for path in (configuration.read(FAILURE_ENRICHERS) or "").split(",")]
    labellers = [EnricherLabeller(_made(path)) for path in dict.fromkeys(filter(None, paths))]
    owners: dict[str, str] = {}
    for labeller in labellers:
        for key in sorted(labeller.keys):
            if key in owners:
                names = f"{owners[key]} and {labeller.name}"
                raise ConfigurationError(f"{FAILURE_ENRICHERS.key()}: {names} both have the output key {key!r}")
            owners[key] = labeller.name
    return labellers


def _made(path: str) -> FailureEnricher:
    module_name, _, name = path.partition(":") if ":" in path else path.rpartition(".")
    try:
        enricher = named_object(module_name, name)()
    except Exception as error:
        problem = f"{path!r} cannot be made: {type(error).__name__}: {error}"
        raise ConfigurationError(f"{FAILURE_ENRICHERS.key()}: {problem}; write module:Class") from error
    if not isinstance(enricher, FailureEnricher):
        raise ConfigurationError(f"{FAILURE_ENRICHERS.key()}: {path!r} is no FailureEnricher")
    return enricher


class LabellingThread:
    """Calls the enrichers of a job whose master has no background, in a thread that exists while failures wait."""

    def __init__(self, labellers: list[EnricherLabeller], job_id: str, job_name: str, history: JobHistory) -> None:
        self._labellers = labellers
        self._job_id = job_id
        self._job_name = job_name
        self._history = history
        self._failures: deque[tuple[int, BaseException]] = deque(maxlen=FAILURES_MAX)
        self._lock = threading.Lock()
        self._is_at_work = False

    def on_failure(self, number: int, cause: BaseException) -> None:
        """Queue a failure, which is recorded under this number."""
        if not self._labellers:
            return
        with self._lock:
            self._failures.append((number, cause))
            if self._is_at_work:
                return
            self._is_at_work = True
        name = f"penstock-failure-enrichers-{self._job_name}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._failures:
                    self._is_at_work = False
                    return
                number, cause = self._failures.popleft()
            failure_type = FailureType.TASK if isinstance(cause, UserFunctionError) else FailureType.GLOBAL
            context = FailureEnricherContext(self._job_id, self._job_name, failure_type)
            for labeller in self._labellers:
                try:
                    labels, complaint = labeller.label(cause, context)
                except Exception as error:  # noqa: BLE001 - the user's code may raise anything
                    labels, complaint = {}, f"{type(error).__name__}: {error}"
                if complaint is not None:
                    _log.warning("%s: failure enricher %s: %s", self._job_name, labeller.name, complaint)
                self._history.labelled(number, labels)
