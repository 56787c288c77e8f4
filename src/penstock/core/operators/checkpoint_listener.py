"""Functions that hear what has become of a checkpoint: Flink's `CheckpointListener`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.core.operators.checkpointed import Call


class CheckpointListener:
    """Hears whether a checkpoint has completed; inherit it beside any function class. PyFlink has none, Flink does.

        class Confirming(MapFunction, CheckpointedFunction, CheckpointListener):
            def notify_checkpoint_complete(self, checkpoint_id):
                ...  # what was captured for this checkpoint, and for all before it, will not be undone

    A function that has methods of these names hears as well without inheriting this class. A method is called between
    two records, by the thread that processes them: it must not emit anything, and no key is current. What it raises
    fails the task.

    **What is promised.** In STREAMING every subtask hears of each completed checkpoint, the last one of a bounded job
    included, and of the savepoint that stops a job, but of no other savepoint. A subtask that fails or is cancelled in
    between does not hear, so take a notification as one for all checkpoints up to that number. In MICRO_BATCH each
    epoch is a checkpoint, of which functions hear when the next epoch begins: again after a failure, and of the last
    epoch not at all. BATCH has no checkpoints.
    """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint has completed: a recovery from now on begins from it or from a later one."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint was given up; what was captured for it belongs to the next one, too."""


def notify_complete(functions: Iterable[Any], checkpoint_id: int, call: Call) -> None:
    """Tell the functions that listen of a completed checkpoint."""
    _notify(functions, "notify_checkpoint_complete", checkpoint_id, call)


def notify_aborted(functions: Iterable[Any], checkpoint_id: int, call: Call) -> None:
    """Tell the functions that listen of a checkpoint that was given up."""
    _notify(functions, "notify_checkpoint_aborted", checkpoint_id, call)


def is_listener(function: Any) -> bool:
    """Whether a function listens, be it only by the name of a method."""
    return hasattr(function, "notify_checkpoint_complete") or hasattr(function, "notify_checkpoint_aborted")


def _notify(functions: Iterable[Any], name: str, checkpoint_id: int, call: Call) -> None:
    for function in functions:
        listens = getattr(function, name, None)
        if listens is not None:
            call(listens, checkpoint_id, what=f"{name}()")
