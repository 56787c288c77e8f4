"""Job events, for subscribers."""

from penstock.operations.events.delivering import EventFile, JobEvents, as_dict
from penstock.operations.events.model import (
    CheckpointEvent,
    EventListener,
    EventsMissedEvent,
    JobEvent,
    JobFailureEvent,
    JobRestartEvent,
    JobStatusChangeEvent,
    RescaleEvent,
    WorkerLeavingEvent,
    WorkerLostEvent,
    WorkerRegisteredEvent,
)

__all__ = [
    "CheckpointEvent",
    "EventFile",
    "EventListener",
    "EventsMissedEvent",
    "JobEvent",
    "JobEvents",
    "JobFailureEvent",
    "JobRestartEvent",
    "JobStatusChangeEvent",
    "RescaleEvent",
    "WorkerLeavingEvent",
    "WorkerLostEvent",
    "WorkerRegisteredEvent",
    "as_dict",
]
