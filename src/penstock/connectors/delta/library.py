"""The library delta-rs, which is an extra: imported where it is used, with a sentence where it is missing."""

from __future__ import annotations

from penstock.base.errors import ConfigurationError


def require_library() -> None:
    """Check that the library is there.

    Raises:
        ConfigurationError: if it is not; the error says how to install it.
    """
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            'Delta Lake needs the library deltalake, here and on every worker: pip install "penstock[delta]"'
        ) from error
