"""Job ids."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from penstock.base.errors import WrongValueError

__all__ = ["JobID"]

_FORM = re.compile(r"[0-9a-f]{32}\Z")


@dataclass(frozen=True, slots=True, order=True)
class JobID:
    """A job's id: 32 lower-case hexadecimal digits.

    Raises:
        ValueError: if `hex_text` has another form.
    """

    hex_text: str

    def __post_init__(self) -> None:
        if not _FORM.match(self.hex_text):
            raise WrongValueError(f"a job id is 32 lower-case hexadecimal digits, not {self.hex_text!r}")

    @classmethod
    def generate(cls) -> JobID:
        """Return a new random id."""
        return cls(secrets.token_hex(16))

    def __str__(self) -> str:
        return self.hex_text
