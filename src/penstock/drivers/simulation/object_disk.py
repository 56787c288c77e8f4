"""The objects of a simulation: a store without directories or renames, with stale listings and occasional throttling.

An object is complete and durable as soon as it is put, and power cuts do not affect it. Listings may be stale: for each
object put or deleted recently, a listing may show the previous state, and the next listing decides again at random. At
times the store refuses all requests for a while, as S3 does when there are too many (503, Slow Down).
"""

from __future__ import annotations

import random
from collections import deque
from typing import Final

from penstock.drivers.simulation.disk import Disk
from penstock.drivers.simulation.faults import Faults
from penstock.drivers.simulation.page_cache import ROOT, Node, get_directory
from penstock.storage.metadata import METADATA_NAME

#: The number of recent puts and deletions that a listing may miss.
LATE_MAX: Final = 24
#: How likely the store begins to refuse requests; at most how many it then refuses, and how often.
THROTTLING: Final = 0.0015
REFUSED_MAX: Final = 6
THROTTLINGS_MAX: Final = 6


class ObjectDisk(Disk):
    """Objects by path, in addition to all other files of the simulation."""

    def __init__(self, world: str, faults: Faults) -> None:
        super().__init__()
        self._faults = faults
        self._chance = random.Random(f"objects of {world}")
        #: the paths last put or deleted, and whether they existed before
        self._recent: deque[tuple[str, bool]] = deque(maxlen=LATE_MAX)
        self._refusals_left = 0

    def put(self, path: str, data: bytes) -> None:
        """Put an object in one step."""
        if not self._begin():
            return
        self._recent.append((path, path in self.files))
        directory = get_directory(path)
        while directory != ROOT and not self.is_directory(directory):
            self._nodes[directory] = self._device[directory] = Node(is_directory=True)
            directory = get_directory(directory)
        self._nodes[path] = self._device[path] = Node(data=data, synced=data)
        self.files[path] = data

    def unlink(self, path: str) -> None:
        was_there = path in self.files
        super().unlink(path)
        if was_there and path not in self.files:
            self._recent.append((path, True))
            self._device.pop(path, None)

    def put_savepoint(self, directory: str, data: bytes) -> None:
        """Put the metadata of a new savepoint: from now on it exists and never changes."""
        if directory in self.savepoints:
            self.violations.append(f"savepoint {directory} was written over")
        self.put(f"{directory}/{METADATA_NAME}", data)
        if not self.is_off:
            self.savepoints[directory] = data

    def listed(self) -> list[str]:
        """List all objects, possibly stale."""
        listing = dict.fromkeys(self.files)
        if not self._faults.are_over:
            for path, was_there in self._recent:
                if self._chance.random() < 1 / 2:
                    if was_there:
                        listing[path] = None
                    else:
                        listing.pop(path, None)
        return list(listing)

    def listed_below(self, directory: str) -> list[str]:
        """List the objects in a directory and below it, possibly stale."""
        return [path for path in self.listed() if path.startswith(f"{directory}/")]

    def ask(self) -> None:
        """Raise `OSError` while the store refuses requests; called before each request."""
        if self._faults.are_over:
            return
        may_begin = self._refusals_left == 0 and self._faults.seen["throttling"] < THROTTLINGS_MAX
        if may_begin and self._chance.random() < THROTTLING:
            self._faults.seen["throttling"] += 1
            self._refusals_left = self._chance.randint(1, REFUSED_MAX)
        if self._refusals_left:
            self._refusals_left -= 1
            raise OSError("planned: 503, Slow Down")
