"""The history of the prompt: statements may hold passwords."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.base.errors import ResourceError
from penstock.cli.sql_shell.shell import keep_private


@pytest.mark.parametrize("mode", [None, 0o644, 0o666])
def test_only_the_user_reads_it(mode: int | None, tmp_path: Path) -> None:
    """S11: a new file, and one that an earlier release made readable for all; its lines stay."""
    path = tmp_path / "new" / "history"
    if mode is not None:
        path.parent.mkdir()
        path.write_text("+SELECT 1;\n")
        path.chmod(mode)
    before = os.umask(0)
    try:
        keep_private(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == ("" if mode is None else "+SELECT 1;\n")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Another user may have put it into a shared directory."""
    (tmp_path / "theirs").write_text("")
    (tmp_path / "history").symlink_to(tmp_path / "theirs")
    with pytest.raises(ResourceError, match="history"):
        keep_private(tmp_path / "history")
