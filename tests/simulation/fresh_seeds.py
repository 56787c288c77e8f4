"""Seeds of a commit: another range for each, and the same for all who test it. `penstock-sim` draws fresh ones."""

import functools
import subprocess
from pathlib import Path
from typing import Final

from tests.effort import tries

FRESH_SEEDS: Final = tries(100)
#: What a tree without a commit, such as an unpacked archive, is tested with.
NO_COMMIT: Final = 1


@functools.cache
def commit_number() -> int:
    """A number below ten million that follows from the commit."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(git, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return NO_COMMIT
    return int(found[:12], 16) % 10_000_000


def fresh_seeds() -> range:
    """Those of this commit."""
    first = commit_number() * 1_000
    return range(first, first + FRESH_SEEDS)
