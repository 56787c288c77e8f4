"""The names of a file sink's part files, and which left-over files a new writer may remove.

A part file is written under a hidden name and committed by renaming it:

    .{prefix}-{subtask}-{counter}-{run}{suffix}.inprogress.{operator}-{attempt}
    {prefix}-{subtask}-{counter}-{run}{suffix}

`operator` stands for the job and the operator, `run` for these and the attempt. So no two writers ever use the same
name: within one attempt of one subtask the counter tells them apart, between attempts, jobs and operators the run does
(G9).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from penstock.core.connector import SinkWriterContext

_HIDDEN = re.compile(
    r"\..*-(?P<subtask>\d+)-\d+-[0-9a-f]{8}.*\.inprogress\.(?P<operator>[0-9a-f]{16})-(?P<attempt>\d+)$"
)


@dataclass(frozen=True, slots=True)
class PartNames:
    """Names for the part files of one writer."""

    prefix: str
    suffix: str
    subtask_index: int
    parallelism: int
    attempt: int
    operator: str
    run: str

    @staticmethod
    def of(context: SinkWriterContext, prefix: str, suffix: str) -> PartNames:
        """The names for a writer with that context."""
        operator = _digest(context.job_id, context.operator_id)[:16]
        run = _digest(context.job_id, context.operator_id, str(context.attempt))[:8]
        return PartNames(prefix, suffix, context.subtask_index, context.parallelism, context.attempt, operator, run)

    def final(self, counter: int) -> str:
        """The name under which a part becomes visible."""
        return f"{self.prefix}-{self.subtask_index}-{counter}-{self.run}{self.suffix}"

    def hidden(self, counter: int) -> str:
        """The name under which it is written."""
        return f".{self.final(counter)}.inprogress.{self.operator}-{self.attempt}"

    def is_stale(self, name: str) -> bool:
        """Whether a file was left by an earlier attempt of this subtask, or of one that is no longer there.

        Of subtasks beyond today's parallelism each is looked after by one of today's.
        """
        match = _HIDDEN.match(name)
        if match is None or match["operator"] != self.operator or int(match["attempt"]) >= self.attempt:
            return False
        return int(match["subtask"]) % self.parallelism == self.subtask_index


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
