"""What tells one run of a task from another: the next one may not have sent what this one did.

In an epoch a token is random, so that any second run is another one. In a run that sorts, which may be long, it is a
digest of all that the task has sent. A task that Spark runs again from sorted rows sends the same, as long as its
functions are deterministic. Then it has the same token, and what others have used of the first run stays valid.
"""

from __future__ import annotations

import marshal
from itertools import compress
from typing import Any, Final

import xxhash

from penstock.core.batch.rows import Rows

#: Without references between equal objects: the bytes follow from the values alone.
_MARSHAL_VERSION: Final = 2


class OutputDigest:
    """Digests the rows of one task that go to other tasks, with what it says beside them."""

    def __init__(self, *whose: Any) -> None:
        self._digest = xxhash.xxh3_128(repr(whose).encode())

    def add(self, rows: Rows) -> None:
        """The next rows; those for the client are passed over."""
        columns = rows.edges, rows.targets, rows.places, rows.timestamps, rows.payloads
        if rows.edges and min(rows.edges) < 0:
            mine = [edge >= 0 for edge in rows.edges]
            columns = tuple(list(compress(column, mine)) for column in columns)  # type: ignore[assignment]
        payloads = columns[-1]
        if payloads:
            self.say((*columns[:-1], list(map(len, payloads))))
            self._digest.update(b"".join(payloads))

    def say(self, what: Any) -> None:
        """Numbers, in tuples, lists and dictionaries."""
        self._digest.update(marshal.dumps(what, _MARSHAL_VERSION))

    def token(self) -> bytes:
        """The digest so far."""
        return self._digest.digest()
