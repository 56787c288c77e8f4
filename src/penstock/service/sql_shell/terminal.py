"""Prepares a terminal for the prompt."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from penstock.base.errors import ResourceError, UnsupportedError
from penstock.service.sql_shell.shell import Shell


def history_path(session: str | None, history: Path | None) -> Path:
    """Return the history file: the one that was named, or one per session in the home directory."""
    if history is not None:
        return history.expanduser()
    return Path.home() / (".penstock-sql-history" if session is None else f".penstock-sql-history-{session}")


def keep_private(path: Path) -> None:
    """Make the history file, which may contain passwords, accessible only to its owner; create it if it is missing."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ResourceError(f"the history {path} cannot be written: {error.strerror}") from error
    try:
        if os.fstat(descriptor).st_uid == os.getuid():
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def run_terminal(shell: Shell, session: str | None, history: Path | None) -> int:
    """Read and run statements until the user quits. Returns the exit code.

    Raises:
        UnsupportedError: without prompt-toolkit.
    """
    if find_spec("prompt_toolkit") is None:
        raise UnsupportedError(
            "the prompt needs prompt-toolkit: pip install 'penstock[shell]', or run a file with penstock sql -f FILE"
        )
    from penstock.service.sql_shell.prompt import Prompt

    path = history_path(session, history)
    keep_private(path)
    Prompt(shell, path, session).run()
    return 0
