"""The partitioner of `partition_custom`: a user's function chooses the channel of a key (B3)."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

from penstock.base.errors import WrongValueError
from penstock.core.operators.base import UserCodeError, select_keys
from penstock.core.operators.context import OperatorContext
from penstock.core.operators.runtime_context import RuntimeContext
from penstock.core.task.channels.partitioners import SelectingPartitioner


class CustomPartitioner(SelectingPartitioner):
    """Sends a record to channel `partition(key, channels)`; no keyed state can follow it.

    Args:
        partitioner: a `Partitioner`, whose `open` and `close` are called on the sending side, or a plain callable.
        key_selector: extracts the key from a record.
    """

    name = "CUSTOM"

    def __init__(self, partitioner: Any, key_selector: Callable[[Any], Any]) -> None:
        self._partitioner = partitioner
        self._key_selector = key_selector
        self._opened = False

    def set_up(self, subtask_index: int, channels: int, max_parallelism: int, consumer: str = "") -> None:
        """Remember the consumer that errors name."""
        super().set_up(subtask_index, channels, max_parallelism, consumer)
        self._consumer = consumer
        self._partition: Callable[[Any, int], int] = getattr(self._partitioner, "partition", self._partitioner)

    def open(self, context: OperatorContext) -> None:
        """Open the user's function with the runtime context of the sending operator."""
        opener = getattr(self._partitioner, "open", None)
        self._opened = True
        if opener is not None:
            try:
                opener(RuntimeContext(context))
            except Exception as error:
                raise UserCodeError(context.operator_name, None, "open() of the partitioner") from error

    def close(self) -> None:
        """Close the user's function, if it was opened."""
        closer = getattr(self._partitioner, "close", None)
        if closer is not None and self._opened:
            self._opened = False
            closer()

    def select_channels(self, values: list[Any]) -> list[int]:
        """Return the channels chosen by the user's function, checked."""
        keys = select_keys(values, self._key_selector, self._consumer)
        partition, channels = self._partition, self.channels
        result: list[int] = []
        try:
            for key in keys:
                channel = index(partition(key, channels))
                if not 0 <= channel < channels:
                    raise WrongValueError(
                        f"partition() returned {channel!r} for key {key!r}: not in 0 to {channels - 1}"
                    )
                result.append(channel)
        except Exception as error:
            raise UserCodeError(self._consumer, values[len(result)], "the partitioner") from error
        return result
