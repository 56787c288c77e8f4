"""Imports optional dependencies on use; the error says how to install them."""

from __future__ import annotations

import importlib

from penstock.base.errors import ConfigurationError


def require(module: str, user: str, library: str, extra: str) -> None:
    """Check that a library is installed by importing one of its modules.

    `user` is the feature that needs it, for the error.

    Raises:
        ConfigurationError: if it is not installed; the message says how to install it.
    """
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f'{user} needs the library {library}, here and on every worker: pip install "penstock[{extra}]"'
        ) from error
