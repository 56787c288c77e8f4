"""The library delta-rs, which is an extra: imported where it is used, with a sentence where it is missing."""

from __future__ import annotations

from penstock.connectors.extras import require


def require_library() -> None:
    """Check that the library is there; raises `ConfigurationError` if not."""
    require("deltalake", "Delta Lake", "deltalake", "delta")
