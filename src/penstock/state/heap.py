"""The hash map state backend: keyed state in dictionaries (D1, D3).

Key groups are computed when a snapshot is written, never on access.
"""

from __future__ import annotations

from penstock.state.backend import Entries, KeyedStateBackend
from penstock.state.descriptors import StateDescriptor
from penstock.state.snapshot import KeyedCapture
from penstock.state.table import StateTable
from penstock.state.ttl_cleanup import Sweeper
from penstock.state.ttl_config import StateTtlConfig


class HeapKeyedStateBackend(KeyedStateBackend):
    """Keeps everything in memory; settling only examines marks, which may be unnecessary."""

    adds_to_canonical = True

    def __init__(self, max_parallelism: int, owner: str = "operator") -> None:
        super().__init__(max_parallelism, owner)
        self._tables: dict[str, StateTable] = {}
        self._sweepers: list[Sweeper] = []

    def table(self, name: str) -> StateTable:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = StateTable(name)
        return table

    def clear(self) -> None:
        """Forget all entries, between two keys of a batch job."""
        for table in self._tables.values():
            table.clear()

    def restore(self, name: str, entries: Entries, is_written: bool, schema: str = "") -> None:
        self.note_schema(name, schema, any(entries.values()))
        table = self.table(name)
        for namespace, restored in entries.items():
            table.entries(namespace).update(restored)
        if is_written:
            table.build_on_snapshot()
        else:
            table.mark_all()

    def capture(self, checkpoint_id: int) -> list[KeyedCapture]:
        """Return the changes since the last confirmed checkpoint; raises `StateError` for unstorable values."""
        for sweeper in self._sweepers:
            sweeper.on_capture()
        captures = []
        for table in self._tables.values():
            capture = table.capture(checkpoint_id, self.owner)
            if capture is not None:
                capture.schema = self.schema_text(table.name)
                captures.append(capture)
        return captures

    def confirm(self, checkpoint_id: int) -> None:
        for table in self._tables.values():
            table.confirm(checkpoint_id)

    def take_back(self, checkpoint_id: int) -> None:
        for table in self._tables.values():
            table.take_back(checkpoint_id)

    def build_sweeper(self, descriptor: StateDescriptor, config: StateTtlConfig) -> Sweeper:
        table = self.table(descriptor.name)
        sweeper = Sweeper(table.entries(None), table.changed(None), descriptor.kind, config, self.now_ms)
        self._sweepers.append(sweeper)
        return sweeper

    def validate(self, key_groups: tuple[int, int]) -> None:
        for table in self._tables.values():
            table.validate(self.max_parallelism, key_groups)

    def settle(self) -> None:
        for table in self._tables.values():
            table.look_at_marks()

    def close(self) -> None:
        """Forget all entries, because a user function may keep a state object, and so the table, for longer."""
        self.clear()
