"""Imports delta-rs, an optional dependency, on use; the error says how to install it."""

from __future__ import annotations

from penstock.connectors.extras import require


def require_library() -> None:
    """Raise `ConfigurationError` unless the library is installed."""
    require("deltalake", "Delta Lake", "deltalake", "delta")
