"""Figures of a job's checkpoints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class CheckpointStatistics:
    """Counts since the job began, and the last completed checkpoint's figures."""

    triggered: int = 0
    completed: int = 0
    failed: int = 0
    savepoints: int = 0
    last_id: int = 0
    last_duration_ms: int = 0
    last_bytes: int = 0
    last_alignment_ms: int = 0
    last_held_back_bytes: int = 0
    last_sync_ms: int = 0
    last_async_ms: int = 0
