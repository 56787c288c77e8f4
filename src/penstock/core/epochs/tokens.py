"""Tokens that distinguish the runs of a task, because the next run may not send what the previous run did.

In an epoch a token is random, so that every run has its own. In a sorting run, which may be long, it is a digest of
everything that the task has sent. A task that Spark runs again from sorted rows sends the same output, as long as its
functions are deterministic. It then has the same token, and output of the first run that others have used stays valid.
"""

from __future__ import annotations

import marshal
from itertools import compress
from typing import Any, Final

import xxhash

from penstock.core.batch.rows import Rows

#: A version without references between equal objects, so the bytes depend on the values alone.
_MARSHAL_VERSION: Final = 2


class OutputDigest:
    """Digests the rows that one task sends to other tasks, and the values that accompany them."""

    def __init__(self, *whose: Any) -> None:
        self._digest = xxhash.xxh3_128(repr(whose).encode())

    def add(self, rows: Rows) -> None:
        """Add the next rows, except rows for the client."""
        columns = rows.edges, rows.targets, rows.places, rows.timestamps, rows.payloads
        if rows.edges and min(rows.edges) < 0:
            mine = [edge >= 0 for edge in rows.edges]
            columns = tuple(list(compress(column, mine)) for column in columns)  # type: ignore[assignment]
        payloads = columns[-1]
        if payloads:
            self.say((*columns[:-1], list(map(len, payloads))))
            self._digest.update(b"".join(payloads))

    def say(self, value: Any) -> None:
        """Add numbers, in tuples, lists and dictionaries."""
        self._digest.update(marshal.dumps(value, _MARSHAL_VERSION))

    def token(self) -> bytes:
        """Return the digest so far."""
        return self._digest.digest()
