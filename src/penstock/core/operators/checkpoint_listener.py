"""Notifications of completed and aborted checkpoints: Flink's `CheckpointListener`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.core.operators.checkpointed import Call


class CheckpointListener:
    """Receives notifications of completed and aborted checkpoints; inherit from it in addition to any function class.

    Flink has this interface, PyFlink does not.

        class Confirming(MapFunction, CheckpointedFunction, CheckpointListener):
            def notify_checkpoint_complete(self, checkpoint_id):
                ...  # no recovery will begin from an earlier checkpoint

    A function with methods of these names is notified even if it does not inherit this class. The thread that processes
    records calls the methods between two records. They must not emit anything, and no key is current. An error that
    they raise fails the task.

    **The guarantee.** In STREAMING every subtask is notified of each completed checkpoint, including the last one of a
    bounded job, and of the savepoint that stops a job, but not of other savepoints. A subtask that fails or is
    cancelled may miss a notification, so treat each one as covering all checkpoints up to its number. In MICRO_BATCH
    each epoch is a checkpoint. Functions are notified when the next epoch begins, and again if that epoch is repeated
    after a failure. The last epoch has no notification. BATCH has no checkpoints.
    """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Handle a completed checkpoint: a recovery from now on begins from it or from a later one."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Handle an aborted checkpoint: the next one includes its changes."""


def notify_complete(functions: Iterable[Any], checkpoint_id: int, call: Call) -> None:
    """Notify the functions that listen of a completed checkpoint."""
    _notify(functions, "notify_checkpoint_complete", checkpoint_id, call)


def notify_aborted(functions: Iterable[Any], checkpoint_id: int, call: Call) -> None:
    """Notify the functions that listen of an aborted checkpoint."""
    _notify(functions, "notify_checkpoint_aborted", checkpoint_id, call)


def is_listener(function: Any) -> bool:
    """Return whether a function listens, even if only by the name of a method."""
    return hasattr(function, "notify_checkpoint_complete") or hasattr(function, "notify_checkpoint_aborted")


def _notify(functions: Iterable[Any], name: str, checkpoint_id: int, call: Call) -> None:
    for function in functions:
        listens = getattr(function, name, None)
        if listens is not None:
            call(listens, checkpoint_id, what=f"{name}()")
