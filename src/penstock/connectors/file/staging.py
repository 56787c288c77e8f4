"""Contents of a staging directory, and the removal of stale files; see `part_names` for the rules."""

from __future__ import annotations

from penstock.connectors.file.filesystem import (
    is_local,
    join,
    list_all,
    read_bytes,
    remove,
    remove_empty_directories,
    remove_empty_directory,
    remove_unless_held,
    write_whole,
)
from penstock.connectors.file.hidden_files import discard
from penstock.connectors.file.part_names import STAGING, PartNames, is_open_part, is_part, is_pins


class Staging:
    """The staging directory of one operator of one job."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    @property
    def base_path(self) -> str:
        """The base path of the sink."""
        return self._directory.rpartition("/")[0].rpartition("/")[0]

    def remove_stale(self, names: PartNames, since: int, of_forerunner: bool = False) -> None:
        """Remove the files that earlier attempts began since a snapshot; 0 for all of them.

        With `of_forerunner`, every attempt in the directory counts as earlier.
        """
        listed = self._listed()
        pins = self._pins(listed)
        pinned = {name for of_one in pins.values() for name in of_one}
        stale = [name for name in listed if names.is_stale(name, since, pinned, of_forerunner)]
        self._remove(stale + names.stale_pins(pins, listed))

    def pin(self, path: str, hidden_paths: list[str]) -> None:
        """Protect the parts among these files until they are committed, whatever happens to the job."""
        own = [name for hidden in hidden_paths if (name := _name(hidden)) and is_part(name)]
        write_whole(path, "\n".join(own).encode())

    def remove_unpinned(self) -> None:
        """Remove all parts that no savepoint names: the job is over and has nothing left to commit."""
        listed = self._listed()
        pins = self._pins(listed)
        pinned = {name for of_one in pins.values() for name in of_one}
        self._remove([name for name in listed if is_part(name) and name not in pinned])
        self._remove([name for name, of_one in pins.items() if not of_one & set(listed)])
        self.remove_if_empty()

    def remove_if_empty(self) -> None:
        """Remove the directory and its parent if they are empty."""
        remove_empty_directory(self._directory)
        remove_empty_directory(self._directory.rpartition("/")[0])

    def _listed(self) -> list[str]:
        return [_name(path) for path in list_all(self._directory)]

    def _pins(self, listed: list[str]) -> dict[str, set[str]]:
        """Return the part names in each file of pins."""
        pins = {}
        for name in filter(is_pins, listed):
            try:
                pins[name] = set(read_bytes(join(self._directory, name)).decode().split("\n"))
            except FileNotFoundError:
                continue  # another subtask has just removed it as no longer needed
        return pins

    def _remove(self, names: list[str]) -> None:
        hidden = [name for name in names if is_part(name)]
        discard(join(self._directory, name) for name in hidden)
        remove(join(self._directory, name) for name in names if name not in hidden)


def remove_what_died(base_path: str) -> None:
    """Remove part files, of any job, whose processes ended before closing them; see `part_names`."""
    if is_local(base_path):
        directory = join(base_path, STAGING)
        for path in list_all(directory):
            if is_open_part(_name(path)):
                remove_unless_held(path)
        remove_empty_directories(directory)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
