"""What a program may say about the operator that made a stream, or about a sink: name, ids, parallelism, chaining."""

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
    """The settings that every operator has. Each method returns the object itself, so that calls can be chained."""

    @property
    @abstractmethod
    def _transformation(self) -> Transformation:
        """The step of the program that the settings are for; raises `TypeError` if there is none."""

    def name(self, name: str) -> Self:
        """What plans, errors and metrics call the operator."""
        self._transformation.name = name
        return self

    def uid(self, uid: str) -> Self:
        """The id under which the operator's state lies in savepoints; unique in the job (H3)."""
        self._transformation.uid = uid
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        """The operator's id itself, 32 hexadecimal digits: to find the state of an operator that had no uid (H3).

        Raises:
            ValueError: if it is not 32 hexadecimal digits.
        """
        if not _UID_HASH.fullmatch(uid_hash):
            raise WrongValueError(f"a uid hash must have 32 hexadecimal digits, unlike {uid_hash!r}")
        self._transformation.uid_hash = uid_hash.lower()
        return self

    def set_description(self, description: str) -> Self:
        """A longer text for plans; the name stays the short one."""
        self._transformation.description = description
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """How many subtasks the operator has.

        Raises:
            ValueError: if it is less than 1.
        """
        if parallelism < 1:
            raise WrongValueError(f"parallelism must be at least 1, not {parallelism}")
        self._transformation.parallelism = parallelism
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """How many key groups the operator's state has, 1 to 32,768; the bound of its parallelism.

        Raises:
            ValueError: if it is out of these bounds.
        """
        if not 1 <= max_parallelism <= 1 << 15:
            raise WrongValueError(f"maximum parallelism must be between 1 and {1 << 15}, not {max_parallelism}")
        self._transformation.max_parallelism = max_parallelism
        return self

    def force_non_parallel(self) -> Self:
        """Run one subtask, whatever is set elsewhere, and never more when the job is rescaled."""
        self._transformation.parallelism = self._transformation.max_parallelism = 1
        return self

    def set_buffer_timeout(self, timeout_millis: int | Duration | datetime.timedelta) -> Self:
        """How old (ms) a network buffer of what the operator emits may get before it is sent though not full.

        0 sends buffers at once, -1 sends only full ones (and what is left when the task has nothing else to do). A task
        sends the buffers of all operators that are chained in it by the shortest of their times.

        Raises:
            ValueError: if it is less than -1.
        """
        timeout_ms = timeout_millis if isinstance(timeout_millis, int) else to_millis(timeout_millis)
        if timeout_ms < -1:
            raise WrongValueError(f"a buffer timeout must be at least 0 ms, or -1 for none, not {timeout_ms}")
        self._transformation.buffer_timeout_ms = timeout_ms
        return self

    def start_new_chain(self) -> Self:
        """Begin a task of its own, in which operators after this one may run too (B4)."""
        self._transformation.chaining = Chaining.HEAD
        return self

    def disable_chaining(self) -> Self:
        """Run the operator alone in its task (B4)."""
        self._transformation.chaining = Chaining.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Share slots only with operators of this group (E3); operators after this one follow unless they set another.

        For each group, a job needs as many slots as the highest parallelism in it. By default, all operators are in the
        group `default`.

        Raises:
            NotImplementedError: for a group with resources of its own.
        """
        group = slot_sharing_group
        if not isinstance(group, str):
            group = group.check_is_available().get_name()
        self._transformation.slot_sharing_group = group
        return self
