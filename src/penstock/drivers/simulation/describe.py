"""One-line descriptions of messages and buffers for the log, without anything that differs between replays."""

from __future__ import annotations

from typing import Any

from penstock.core.protocol import (
    AcknowledgeCheckpoint,
    AssignSplits,
    DeclineCheckpoint,
    RegisterWorker,
    TaskStateChanged,
)
from penstock.core.records import (
    MAX_WATERMARK,
    Batch,
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfData,
    EndOfOutputChannelState,
    LatencyMarker,
    Watermark,
    WatermarkStatus,
)


def describe_message(message: Any) -> str:
    """Describe a message between the job master and a worker."""
    words = [type(message).__name__]
    execution = getattr(message, "execution", None)
    if execution is not None:
        words.append(str(execution))
    checkpoint_id = getattr(message, "checkpoint_id", None)
    if checkpoint_id is not None:
        words.append(f"checkpoint {checkpoint_id}")
    if isinstance(message, TaskStateChanged):
        words.append(message.state)
        if message.failure is not None:
            words.append(message.failure.reason)
    elif isinstance(message, AcknowledgeCheckpoint):
        words.append("finished" if message.finished else "")
    elif isinstance(message, DeclineCheckpoint):
        words.append(message.reason)
    elif isinstance(message, AssignSplits):
        words.append(f"{len(message.splits)} splits{', no more' if message.no_more else ''}")
    elif isinstance(message, RegisterWorker):
        words.append(message.worker_id)
    return " ".join(word for word in words if word)


def describe_buffer(buffer: list[Any]) -> str:
    """Describe a buffer: the number of records, and its control elements."""
    return "[" + " ".join(_element(e) for e in buffer) + "]"


def _element(element: Any) -> str:
    if isinstance(element, Batch):
        return f"{len(element)}r"
    if isinstance(element, Watermark):
        return "w=max" if element.timestamp == MAX_WATERMARK else f"w={element.timestamp}"
    if isinstance(element, CheckpointBarrier):
        return f"barrier-{element.checkpoint_id}"
    if isinstance(element, CancelCheckpointMarker):
        return f"cancel-{element.checkpoint_id}"
    if isinstance(element, WatermarkStatus):
        return "idle" if element.idle else "active"
    if isinstance(element, LatencyMarker):
        return f"marker-{element.marked_ms}"
    if isinstance(element, EndOfOutputChannelState):
        return "end-of-channel-state"
    if isinstance(element, EndOfData):
        return "end-of-data"
    return "end-of-partition"
