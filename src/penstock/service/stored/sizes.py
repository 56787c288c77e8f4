"""Human-readable sizes."""

from __future__ import annotations


def size_text(size: float) -> str:
    """Return a number of bytes in human-readable form."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"
