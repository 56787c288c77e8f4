"""What git knows: the changes since a commit, the commit's number, and the record of the last full run."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Final

#: where the last full run is recorded, below the root of the repository
RECORD: Final = "tests/selection/last_full_run.toml"


class HistoryError(Exception):
    """History does not say what has changed; the message gives the reason."""


def _git(root: Path, *arguments: str) -> str:
    """The output of a git command.

    Raises:
        HistoryError: if git is missing or refuses.
    """
    command = ["git", "-C", str(root), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except OSError as error:
        raise HistoryError("there is no git") from error
    except subprocess.CalledProcessError as error:
        told = error.stderr.strip().splitlines()
        raise HistoryError(told[0] if told else f"git {arguments[0]} fails") from error


class History:
    """A working tree and the commits below it."""

    def __init__(self, root: Path) -> None:
        """Look at the repository with this root.

        Raises:
            HistoryError: if there is none, or it is a shallow clone.
        """
        self._root = root.resolve()
        top = _git(root, "rev-parse", "--show-toplevel").strip()
        if Path(top).resolve() != self._root:
            raise HistoryError("the folder is not the root of a repository")
        if _git(root, "rev-parse", "--is-shallow-repository").strip() == "true":
            raise HistoryError("the clone is shallow")

    def head(self) -> str:
        """The commit that is checked out."""
        return _git(self._root, "rev-parse", "HEAD").strip()

    def is_clean(self) -> bool:
        """Whether the working tree is what the commit holds, with no other files."""
        return not _git(self._root, "status", "--porcelain").strip()

    def number(self) -> int:
        """How many commits lead to this one; a merge counts as one."""
        return int(_git(self._root, "rev-list", "--count", "--first-parent", "HEAD"))

    def recorded(self) -> str:
        """The commit of the last full run.

        Raises:
            HistoryError: if none is recorded, or the repository does not have it.
        """
        try:
            commit = tomllib.loads((self._root / RECORD).read_text())["commit"]
        except FileNotFoundError as error:
            raise HistoryError("no full run is recorded") from error
        except (tomllib.TOMLDecodeError, KeyError) as error:
            raise HistoryError("the record of the last full run cannot be read") from error
        if not isinstance(commit, str) or not self._has(commit):
            raise HistoryError("the commit of the last full run is unknown here")
        return commit

    def changes_since(self, commit: str) -> set[str]:
        """The paths that differ between a commit and the working tree, without the record; what moved has two."""
        changed = _git(self._root, "diff", "--name-only", "--no-renames", "-z", commit)
        new = _git(self._root, "ls-files", "--others", "--exclude-standard", "-z")
        return set(f"{changed}\0{new}".split("\0")) - {"", RECORD}

    def recent_changes(self, commits: int) -> set[str]:
        """What the last commits and the working tree change; everything that there is, where there are fewer."""
        before = f"HEAD~{commits}"
        if not self._has(before):
            return set(_git(self._root, "ls-files", "-z").split("\0")) - {""}
        return self.changes_since(before)

    def _has(self, commit: str) -> bool:
        try:
            _git(self._root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
        except HistoryError:
            return False
        return True


def write_record(root: Path, commit: str, passed: int, skipped: int) -> None:
    """Record a full run whose tests did not fail."""
    lines = [
        "# The commit of the last full run without a failure: `make test-all` writes this, see docs/testing.md.",
        f'commit = "{commit}"',
        f"passed = {passed}",
        f"skipped = {skipped}",
    ]
    (root / RECORD).write_text("\n".join(lines) + "\n")
