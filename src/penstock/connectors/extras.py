"""Libraries that are extras: imported where they are used, with a sentence where they are missing."""

from __future__ import annotations

import importlib

from penstock.base.errors import ConfigurationError


def require(module: str, user: str, library: str, extra: str) -> None:
    """Check that a library is there, by importing a module of it.

    `user`: what needs it, for the error.

    Raises:
        ConfigurationError: if it is not; the error says how to install it.
    """
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f'{user} needs the library {library}, here and on every worker: pip install "penstock[{extra}]"'
        ) from error
