"""What all user functions share."""

from __future__ import annotations

from penstock.core.operators.runtime_context import RuntimeContext


class Function:
    """Base of all user functions: `open` runs before the first record, `close` after the last, on every path."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get ready: look up state, connect. Runs on the worker, once per subtask and attempt."""

    def close(self) -> None:
        """Release what `open` took."""
