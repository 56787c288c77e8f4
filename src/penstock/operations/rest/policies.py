"""The Content-Security-Policy of answers: browsers load nothing else, whatever a name or a record injects."""

from __future__ import annotations

from typing import Final

#: For the page: only its own files. The built page has the same policy, except for frames, which only a header can
#: forbid.
PAGE_POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-src 'none'; frame-ancestors 'none'"
)
#: For data: nothing at all.
DATA_POLICY: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
