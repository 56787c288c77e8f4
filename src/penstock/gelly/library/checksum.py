"""A fingerprint of a graph, to compare graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import xxhash

from penstock.gelly.asm.partials import Partial, partials
from penstock.gelly.base.streams import collected
from penstock.gelly.library.analytic import Analytic
from penstock.state.key_bytes import key_bytes

_BITS: Final = 0xFFFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class Checksum:
    """The fingerprint of a graph. Unpacks into both numbers.

    Attributes:
        count: the number of vertices and edges together.
        checksum: the sum of their hashes, as 64 bits. The hashes differ from Java's.
    """

    count: int
    checksum: int

    def get_count(self) -> int:
        """Return the number of vertices and edges together."""
        return self.count

    def get_checksum(self) -> int:
        """Return the sum of their hashes."""
        return self.checksum

    def __iter__(self) -> Iterator[int]:
        return iter((self.count, self.checksum))

    def __str__(self) -> str:
        return f"ChecksumHashCode 0x{self.checksum:016x}, count {self.count}"


class ChecksumHashCode(Analytic[Checksum]):
    """Counts vertices and edges and adds up their hashes, in any order.

    Ids and values must be valid keys: numbers, text, bytes, times, None, and tuples of these. The result is the same in
    every process.
    """

    def compute(self, graph: Any, job_name: str) -> Checksum:
        everything = graph.get_vertices().union(graph.get_edges())
        records = collected(partials(everything, _Hashes, "Checksum"), job_name)
        return Checksum(sum(count for count, _ in records), sum(hashes for _, hashes in records) & _BITS)


class _Hashes(Partial):
    def __init__(self) -> None:
        self._count = self._sum = 0

    def add(self, records: Sequence[Any]) -> None:
        self._count += len(records)
        self._sum += sum(xxhash.xxh3_64_intdigest(key_bytes(tuple(record))) for record in records)

    def take(self) -> list[Any]:
        records = [(self._count, self._sum & _BITS)] if self._count else []
        self._count = self._sum = 0
        return records
