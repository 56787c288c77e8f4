"""Settings of a stream's operator or of a sink: name, ids, parallelism, chaining; and `DataStreamSink`."""

from __future__ import annotations

import datetime
import re
from abc import ABC, abstractmethod
from typing import Self

from penstock.base.errors import WrongValueError
from penstock.base.time import Duration, to_millis
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.plan.transformation import Chaining, Transformation

_UID_HASH = re.compile("[0-9A-Fa-f]{32}")


class OperatorSettings(ABC):
    """The settings of every operator. Each method returns the object itself, so calls can be chained."""

    @property
    @abstractmethod
    def _transformation(self) -> Transformation:
        """The transformation that the settings apply to; raises `TypeError` for a union."""

    def name(self, name: str) -> Self:
        """Set the operator's name in plans, errors and metrics.

        Examples:
            >>> words.map(len).name("lengths").get_name()
            'lengths'
        """
        self._transformation.name = name
        return self

    def uid(self, uid: str) -> Self:
        """Set the id of the operator's state in savepoints; unique in the job (H3).

        Examples:
            >>> lengths = words.map(len).uid("lengths")
        """
        self._transformation.uid = uid
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        """Set the operator id itself, 32 hexadecimal digits, to restore the state of an operator without a uid (H3).

        Raises:
            ValueError: if it is not 32 hexadecimal digits.
        """
        if not _UID_HASH.fullmatch(uid_hash):
            raise WrongValueError(f"a uid hash must have 32 hexadecimal digits, unlike {uid_hash!r}")
        self._transformation.uid_hash = uid_hash.lower()
        return self

    def set_description(self, description: str) -> Self:
        """Set a longer text for plans; the short name is unchanged."""
        self._transformation.description = description
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of subtasks of the operator.

        Raises:
            ValueError: if it is less than 1.

        Examples:
            >>> lengths = words.map(len).set_parallelism(2)
        """
        if parallelism < 1:
            raise WrongValueError(f"parallelism must be at least 1, not {parallelism}")
        self._transformation.parallelism = parallelism
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups of the operator's state, 1 to 32,768. It limits the parallelism.

        Raises:
            ValueError: if it is out of this range.
        """
        if not 1 <= max_parallelism <= 1 << 15:
            raise WrongValueError(f"maximum parallelism must be between 1 and {1 << 15}, not {max_parallelism}")
        self._transformation.max_parallelism = max_parallelism
        return self

    def force_non_parallel(self) -> Self:
        """Run the operator with one subtask, whatever other settings say, and never more after rescaling."""
        self._transformation.parallelism = self._transformation.max_parallelism = 1
        return self

    def set_buffer_timeout(self, timeout_millis: int | Duration | datetime.timedelta) -> Self:
        """Set the age (ms) at which a network buffer with the operator's output is sent even if it is not full.

        0 sends buffers at once, -1 sends only full ones (and the rest when the task has nothing else to do). A task
        uses the shortest timeout of the operators that are chained in it.

        Raises:
            ValueError: if it is less than -1.
        """
        timeout_ms = timeout_millis if isinstance(timeout_millis, int) else to_millis(timeout_millis)
        if timeout_ms < -1:
            raise WrongValueError(f"a buffer timeout must be at least 0 ms, or -1 for none, not {timeout_ms}")
        self._transformation.buffer_timeout_ms = timeout_ms
        return self

    def start_new_chain(self) -> Self:
        """Start a new task with this operator; later operators may be chained to it (B4)."""
        self._transformation.chaining = Chaining.HEAD
        return self

    def disable_chaining(self) -> Self:
        """Run the operator alone in its task (B4)."""
        self._transformation.chaining = Chaining.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Share slots only with operators of this group (E3). Downstream operators inherit it unless they set another.

        For each group, a job needs as many slots as the highest parallelism in it. By default, all operators are in the
        group `default`.

        Raises:
            NotImplementedError: if the group requests resources.
        """
        group = slot_sharing_group
        if not isinstance(group, str):
            group = group.check_is_available().get_name()
        self._transformation.slot_sharing_group = group
        return self


__all__ = ["DataStreamSink"]


class DataStreamSink(OperatorSettings):
    """The end of a stream; its methods set its name and other settings.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> sink = env.from_elements("tea").print().name("words").set_parallelism(2)
    """

    def __init__(self, transformation: Transformation) -> None:
        self._sink = transformation

    @property
    def _transformation(self) -> Transformation:
        return self._sink
