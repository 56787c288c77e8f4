"""Slot sharing groups: which operators may share a worker's slot (E3)."""

from __future__ import annotations

from typing import Self

from penstock.base.config_options import format_bytes
from penstock.base.errors import UnsupportedError, WrongValueError

__all__ = ["MemorySize", "SlotSharingGroup"]


class MemorySize:
    """An amount of memory.

    Args:
        bytes_size: the amount in bytes.

    Raises:
        ValueError: if it is negative.
    """

    def __init__(self, bytes_size: int) -> None:
        if bytes_size < 0:
            raise WrongValueError(f"a memory size cannot be negative: {bytes_size}")
        self._bytes = bytes_size

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """Create a size of this many MiB (1,048,576 bytes)."""
        return MemorySize(mebi_bytes << 20)

    def get_bytes(self) -> int:
        """Return the size in bytes."""
        return self._bytes

    def get_kibi_bytes(self) -> int:
        """Return the size in whole KiB."""
        return self._bytes >> 10

    def get_mebi_bytes(self) -> int:
        """Return the size in whole MiB."""
        return self._bytes >> 20

    def get_gibi_bytes(self) -> int:
        """Return the size in whole GiB."""
        return self._bytes >> 30

    def get_tebi_bytes(self) -> int:
        """Return the size in whole TiB."""
        return self._bytes >> 40

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemorySize) and self._bytes == other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __lt__(self, other: MemorySize) -> bool:
        return self._bytes < other._bytes

    def __str__(self) -> str:
        return format_bytes(self._bytes)

    def __repr__(self) -> str:
        return f"MemorySize({self._bytes})"


class SlotSharingGroup:
    """A group of operators that share slots; created by `SlotSharingGroup.builder(name).build()`.

    A group can request resources. Slots of Penstock are Spark tasks, which are all equal, so an environment rejects a
    group that requests resources. Set the size of slots with `spark.executor.memory` and similar options.

    Examples:
        >>> from penstock.datastream import SlotSharingGroup, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> heavy = SlotSharingGroup.builder("heavy").build()
        >>> lengths = env.from_elements("tea").map(len).slot_sharing_group(heavy)
    """

    def __init__(
        self,
        name: str,
        cpu_cores: float | None = None,
        task_heap_memory: MemorySize | None = None,
        task_off_heap_memory: MemorySize | None = None,
        managed_memory: MemorySize | None = None,
        external_resources: dict[str, float] | None = None,
    ) -> None:
        self._name = name
        self._cpu_cores = cpu_cores
        self._task_heap_memory = task_heap_memory
        self._task_off_heap_memory = task_off_heap_memory
        self._managed_memory = managed_memory
        self._external_resources = dict(external_resources or {})

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        """Return a builder of a group with this name."""
        return SlotSharingGroup.Builder(name)

    def get_name(self) -> str:
        """Return the name, which operators use to join the group."""
        return self._name

    def get_cpu_cores(self) -> float | None:
        """Return the requested number of CPU cores of a slot; None if not requested."""
        return self._cpu_cores

    def get_task_heap_memory(self) -> MemorySize | None:
        """Return the requested heap memory of a slot; None if not requested."""
        return self._task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """Return the requested off-heap memory of a slot; None if not requested."""
        return self._task_off_heap_memory

    def get_managed_memory(self) -> MemorySize | None:
        """Return the requested managed memory of a slot; None if not requested."""
        return self._managed_memory

    def get_external_resources(self) -> dict[str, float]:
        """Return the other requested resources of a slot, by name."""
        return dict(self._external_resources)

    def check_is_available(self) -> SlotSharingGroup:
        """Return the group itself if it requests no resources.

        Raises:
            NotImplementedError: if it requests resources.
        """
        wishes = (self._cpu_cores, self._task_heap_memory, self._task_off_heap_memory, self._managed_memory)
        if self._external_resources or any(wish is not None for wish in wishes):
            raise UnsupportedError(
                f"slot sharing group {self._name!r} has resources, but all slots are equal: remove them, and size "
                "Spark's executors with spark.executor.memory and spark.task.cpus"
            )
        return self

    class Builder:
        """Builds a group."""

        def __init__(self, name: str) -> None:
            self._group = SlotSharingGroup(name)

        def set_cpu_cores(self, cpu_cores: float) -> Self:
            """Set the number of CPU cores of a slot."""
            self._group._cpu_cores = cpu_cores
            return self

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> Self:
            """Set the heap memory of a slot."""
            self._group._task_heap_memory = task_heap_memory
            return self

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> Self:
            """Set the heap memory of a slot in MiB."""
            return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> Self:
            """Set the off-heap memory of a slot."""
            self._group._task_off_heap_memory = task_off_heap_memory
            return self

        def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> Self:
            """Set the off-heap memory of a slot in MiB."""
            return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize) -> Self:
            """Set the managed memory of a slot."""
            self._group._managed_memory = managed_memory
            return self

        def set_managed_memory_mb(self, managed_memory_mb: int) -> Self:
            """Set the managed memory of a slot in MiB."""
            return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> Self:
            """Set the amount of another resource of a slot."""
            self._group._external_resources[name] = value
            return self

        def build(self) -> SlotSharingGroup:
            """Return the group."""
            return self._group
