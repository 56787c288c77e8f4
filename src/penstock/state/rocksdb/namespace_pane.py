"""The pane of a table's namespace: one row per entry, in the key group of the entry's key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from penstock.state.key_bytes import decode_plain_key, key_bytes
from penstock.state.key_checks import check_key_groups, sample_keys
from penstock.state.key_groups import key_group_of_bytes
from penstock.state.rocksdb.cache import WriteCache
from penstock.state.rocksdb.pane import Pane
from penstock.state.rocksdb.rows import namespace_head, pickled_keys, sized
from penstock.state.rocksdb.store import Batch, Row


class NamespacePane(Pane):
    """The entries of one namespace, one row each, in the key groups of their keys."""

    __slots__ = ("_head", "_key_at", "_max_parallelism", "groups")

    def __init__(
        self, cache: WriteCache, name: str, layout: bytes, namespace: Any, max_parallelism: int, groups: int = 0
    ) -> None:
        # A plain state has a single pane, whose entries are counted on demand.
        super().__init__(cache, name, bool(groups), 0 if namespace is None else 1)
        cache.grown += self._weight
        #: a bitmap of the key groups that may have rows
        self.groups = groups
        self._head = namespace_head(name, layout, namespace)
        self._key_at = 2 + len(self._head) + 4
        self._max_parallelism = max_parallelism

    def locate(self, key: Any) -> bytes:
        data = key_bytes(key)
        return key_group_of_bytes(data, self._max_parallelism).to_bytes(2, "big") + self._head + sized(data)

    def _decode_key(self, row: bytes, raw: bytes) -> Any:
        keys = pickled_keys(raw)
        return decode_plain_key(row[self._key_at :]) if keys is None else keys[0]

    def _encode(self, key: Any, value: Any) -> bytes:
        cache, name = self._cache, self._name
        return cache.encode(name, cache.pickle(name, value), key)

    def _on_put(self, row: bytes) -> None:
        group = 1 << int.from_bytes(row[:2], "big")
        if not self.groups & group:
            self.groups |= group
            self.has_rows = True

    def _rows(self) -> Iterator[Row]:
        if not self.groups:
            return iter(())
        return chain.from_iterable(map(self._cache.store.view().scan, self.prefixes()))

    def prefixes(self) -> Iterable[bytes]:
        groups, group = self.groups, 0
        while groups:
            low = (groups & -groups).bit_length()
            group += low
            groups >>= low
            yield (group - 1).to_bytes(2, "big") + self._head

    def sweep(self, row: bytes, raw: bytes, key_at: int, latest_expired_ms: int, batch: Batch) -> None:
        """See `Sweepable.sweep`."""
        self.sweep_row(self._decode_key(row, raw), row, raw, latest_expired_ms, batch)

    def validate(self, key_groups: tuple[int, int]) -> None:
        """See `KeyedStateBackend.validate`."""
        keys = [*sample_keys(dict.keys(self)), *sample_keys(self._old)]
        check_key_groups(self._name, keys, self._max_parallelism, key_groups)
        assert self.has_rows or not self.groups, f"state {self._name!r}: only what has rows has key groups"
        assert self.has_rows or not any(self._gone.values()), f"state {self._name!r}: only what has rows deletes some"

    def __bool__(self) -> bool:
        if super().__bool__():
            return True
        if not any(self._gone.values()):
            self.groups, self.has_rows = 0, False
        return False

    def clear(self) -> None:
        super().clear()
        self.groups = 0
