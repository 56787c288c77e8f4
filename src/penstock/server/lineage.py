"""OpenLineage: run events of jobs, with the datasets that they read and write, for catalogs of lineage.

`openlineage.transport.type` switches them on. A job sends START when it begins, RUNNING when it runs and then about
once a minute with a completed checkpoint, and COMPLETE, FAIL or ABORT at its end. Its run id is its job id, as a UUID.

**Datasets** are those that sources and sinks describe, with OpenLineage's namespaces and names; those of tables have
their schema, and an INSERT tells what its columns are computed from.

**Failures.** Events are sent by the job's thread for listeners. One that cannot be sent is dropped; the job goes on.
The first failure is logged, and the number of all of them at the end.

Source: the OpenLineage specification 2-0-2 and its facets; option names as in its integration for Flink.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import logging
import ssl
import sys
import urllib.request
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from penstock.base import lineage as lineage_options
from penstock.base.configuration import Configuration
from penstock.base.errors import DISTRIBUTION, ConfigurationError
from penstock.base.lineage import InputField, LineageDataset
from penstock.base.secrets import hide, hide_json
from penstock.runtime.graph import JobGraph
from penstock.server.events import CheckpointEvent, EventListener, JobEvent, JobFailureEvent, JobStatusChangeEvent

_LOG: Final = logging.getLogger("penstock.lineage")

PRODUCER: Final = "https://pypi.org/project/penstock"
_SPEC: Final = "https://openlineage.io/spec"
_RUN_EVENT: Final = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
#: the version of each facet's schema
_FACETS: Final = {
    "SchemaDatasetFacet": "1-1-1",
    "ColumnLineageDatasetFacet": "1-2-0",
    "SymlinksDatasetFacet": "1-0-1",
    "JobTypeJobFacet": "2-0-3",
    "ProcessingEngineRunFacet": "1-1-1",
    "ErrorMessageRunFacet": "1-0-1",
    "ParentRunFacet": "1-1-0",
}
#: how often a running job says so, if its checkpoints complete
TRACKING_INTERVAL_MS: Final = 60_000
_ENDS: Final = {"FINISHED": "COMPLETE", "FAILED": "FAIL", "CANCELED": "ABORT"}
_DEFAULT_ENDPOINT: Final = "api/v1/lineage"


class Transport(Protocol):
    """Where events go."""

    def __call__(self, event: str) -> None:
        """Send an event, a JSON text. Raises an exception if that fails."""


class FileTransport:
    """Appends each event as a line to a file."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def __call__(self, event: str) -> None:
        """See `Transport`."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(event + "\n")


class ConsoleTransport:
    """Prints each event as a line to stderr, where the log goes."""

    def __call__(self, event: str) -> None:
        """See `Transport`."""
        sys.stderr.write(event + "\n")


@dataclass(frozen=True, slots=True)
class HttpTransport:
    """Sends each event by POST.

    Attributes:
        url: the URL.
        headers: the headers.
        timeout_s: how long a request may take.
    """

    url: str
    headers: Mapping[str, str]
    timeout_s: float

    def __call__(self, event: str) -> None:
        """See `Transport`."""
        request = urllib.request.Request(self.url, event.encode(), dict(self.headers), method="POST")
        context = ssl.create_default_context() if self.url.startswith("https") else None
        with urllib.request.urlopen(request, timeout=self.timeout_s, context=context) as response:
            response.read()


def build_transport(configuration: Configuration) -> Transport:
    """Return where a job's events go.

    Raises:
        ConfigurationError: for options that are missing or wrong.
    """
    kind = configuration.read(lineage_options.TRANSPORT)
    if kind == "console":
        return ConsoleTransport()
    if kind == "file":
        path = configuration.read(lineage_options.LOCATION)
        if path is None:
            raise _missing(lineage_options.LOCATION.key(), kind)
        return FileTransport(path)
    url = configuration.read(lineage_options.URL)
    if url is None:
        raise _missing(lineage_options.URL.key(), kind)
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"{lineage_options.URL.key()} is a URL such as http://host:5000, not {hide(url)!r}")
    headers = {"Content-Type": "application/json", "User-Agent": "penstock"}
    key = configuration.read(lineage_options.API_KEY)
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    endpoint = configuration.read(lineage_options.ENDPOINT) or _DEFAULT_ENDPOINT
    timeout_s = configuration.read(lineage_options.TIMEOUT_MS) / 1_000
    return HttpTransport(f"{url.rstrip('/')}/{endpoint.lstrip('/')}", headers, timeout_s)


def _missing(key: str, kind: str | None) -> ConfigurationError:
    return ConfigurationError(f"{lineage_options.TRANSPORT.key()} = {kind} needs {key}")


def build_parent(configuration: Configuration) -> dict[str, Any] | None:
    """Return the run that started the job, as its facet has it; None if none is named.

    Raises:
        ConfigurationError: if it is named in part, or its id is no UUID.
    """
    parent = (lineage_options.PARENT_NAMESPACE, lineage_options.PARENT_NAME, lineage_options.PARENT_RUN)
    namespace, name, run_id = map(configuration.read, parent)
    if namespace is None and name is None and run_id is None:
        return None
    if namespace is None or name is None or run_id is None:
        raise ConfigurationError(f"{', '.join(option.key() for option in parent)} go together: set all of them")
    try:
        run_id = str(uuid.UUID(run_id))
    except ValueError as error:
        raise ConfigurationError(f"{lineage_options.PARENT_RUN.key()} is a UUID, not {run_id!r}") from error
    return _facet("ParentRunFacet", run={"runId": run_id}, job={"namespace": namespace, "name": name})


def check(configuration: Configuration) -> None:
    """Check a job's options before it begins. Raises `ConfigurationError` for options that are missing or wrong."""
    build_transport(configuration)
    build_parent(configuration)


def _facet(name: str, /, **content: Any) -> dict[str, Any]:
    url = f"{_SPEC}/facets/{_FACETS[name]}/{name}.json#/$defs/{name}"
    return {"_producer": PRODUCER, "_schemaURL": url, **content}


def build_dataset(dataset: LineageDataset, is_output: bool) -> dict[str, Any]:
    """Return a dataset as an event has it."""
    facets: dict[str, Any] = {}
    if dataset.fields:
        fields = [{"name": name, "type": kind} for name, kind in dataset.fields]
        facets["schema"] = _facet("SchemaDatasetFacet", fields=fields)
    if dataset.catalog_name is not None and dataset.catalog_name != dataset.name:
        identifier = {"namespace": "penstock", "name": dataset.catalog_name, "type": "TABLE"}
        facets["symlinks"] = _facet("SymlinksDatasetFacet", identifiers=[identifier])
    if is_output and dataset.columns:
        fields_of = {name: {"inputFields": list(_input_fields(origins))} for name, origins in dataset.columns.items()}
        facets["columnLineage"] = _facet(
            "ColumnLineageDatasetFacet", fields=fields_of, dataset=list(_input_fields(dataset.rows))
        )
    return {"namespace": dataset.namespace, "name": dataset.name, "facets": facets}


def _input_fields(origins: Iterable[InputField]) -> Iterable[dict[str, Any]]:
    kinds: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for it in origins:
        transformation = {"type": "DIRECT" if it.is_direct else "INDIRECT", "subtype": it.kind}
        kinds.setdefault((it.namespace, it.name, it.field), []).append(transformation)
    for (namespace, name, column), transformations in kinds.items():
        yield {"namespace": namespace, "name": name, "field": column, "transformations": transformations}


def find_inputs(graph: JobGraph) -> list[LineageDataset]:
    """Return the datasets that a job reads, each once; tables that are only looked up are known by their columns."""
    inputs = {(dataset.namespace, dataset.name): dataset for dataset in graph.inputs}
    for output in graph.outputs:
        for origin in (*(it for origins in output.columns.values() for it in origins), *output.rows):
            inputs.setdefault((origin.namespace, origin.name), LineageDataset(origin.namespace, origin.name))
    return list(inputs.values())


class OpenLineageListener(EventListener):
    """Sends the run events of a job.

    Args:
        graph: the job.
        configuration: its options.
        transport: where events go.
        version: the version of Penstock.
    """

    def __init__(
        self, graph: JobGraph, configuration: Configuration, transport: Transport, version: str | None = None
    ) -> None:
        self._transport = transport
        self._sent_ms = 0
        self._failures = self._events = 0
        self._reason: str | None = None
        self._has_begun = False
        self._job: dict[str, Any] = {
            "namespace": configuration.read(lineage_options.NAMESPACE),
            "name": configuration.read(lineage_options.JOB_NAME) or graph.name,
            "facets": {
                "jobType": _facet(
                    "JobTypeJobFacet",
                    processingType="BATCH" if graph.mode == "BATCH" else "STREAMING",
                    integration="PENSTOCK",
                    jobType="JOB",
                )
            },
        }
        version = version or _read_version()
        engine = _facet("ProcessingEngineRunFacet", name="penstock", version=version, openlineageAdapterVersion=version)
        self._run_facets: dict[str, Any] = {"processing_engine": engine}
        parent = build_parent(configuration)
        if parent is not None:
            self._run_facets["parent"] = parent
        self._inputs = [build_dataset(dataset, False) for dataset in find_inputs(graph)]
        outputs = {(dataset.namespace, dataset.name): dataset for dataset in graph.outputs}
        self._outputs = [build_dataset(dataset, True) for dataset in outputs.values()]

    @property
    def failures(self) -> int:
        """How many events could not be sent."""
        return self._failures

    def on_event(self, event: JobEvent) -> None:
        """Send what the event means."""
        if not self._has_begun:
            self._has_begun = True
            self._send("START", event)
        match event:
            case JobFailureEvent():
                self._reason = event.text
            case JobStatusChangeEvent(new_status="RUNNING"):
                self._send("RUNNING", event)
            case JobStatusChangeEvent() if event.new_status in _ENDS:
                self._send(_ENDS[event.new_status], event)
            case CheckpointEvent(status="COMPLETED") if event.at_ms >= self._sent_ms + TRACKING_INTERVAL_MS:
                self._send("RUNNING", event)
            case _:
                pass

    def _send(self, kind: str, event: JobEvent) -> None:
        facets = dict(self._run_facets)
        if kind == "FAIL":
            reason = (event.reason if isinstance(event, JobStatusChangeEvent) else None) or self._reason or "failed"
            facets["errorMessage"] = _facet("ErrorMessageRunFacet", message=reason, programmingLanguage="PYTHON")
        moment = datetime.datetime.fromtimestamp(event.at_ms / 1_000, datetime.UTC)
        message = {
            "eventType": kind,
            "eventTime": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "run": {"runId": str(uuid.UUID(event.job_id)), "facets": facets},
            "job": self._job,
            "inputs": self._inputs,
            "outputs": self._outputs,
            "producer": PRODUCER,
            "schemaURL": _RUN_EVENT,
        }
        self._sent_ms = event.at_ms
        self._events += 1
        try:
            self._transport(hide_json(json.dumps(message, ensure_ascii=False)))
        except Exception as error:  # noqa: BLE001 - lineage never fails a job
            self._failures += 1
            if self._failures == 1:
                _LOG.warning(
                    "%s: a lineage event cannot be sent, and is dropped: %s", self._job["name"], hide(str(error))
                )

    def close(self) -> None:
        """Say how many events could not be sent."""
        if self._failures:
            _LOG.warning(
                "%s: %d of %d lineage events could not be sent", self._job["name"], self._failures, self._events
            )


def _read_version() -> str:
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
