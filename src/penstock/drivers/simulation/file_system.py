"""The simulated disk as an fsspec file system, for connectors that write files (G9).

It counts as a local one: `SimulatedFiles` handles operations outside fsspec's interface, such as syncing and holding
files. A path begins with the name of its world: `penstock-sim://sim-7/out/sink-1/part-0-0`.
"""

from __future__ import annotations

import io
from typing import Any, BinaryIO, Final, cast

import fsspec
from fsspec.spec import AbstractFileSystem

from penstock.base.durable_files import LocalFiles
from penstock.base.errors import MissingPathError
from penstock.drivers.simulation.outside import Outside, outside
from penstock.drivers.simulation.page_cache import PageCache

PROTOCOL: Final = "penstock-sim"


def _locate(path: str) -> tuple[Outside, str]:
    """Return the world of a path, and the path in it."""
    name, _, rest = path.partition("/")
    return outside(name), rest.rstrip("/")


def _step(path: str) -> tuple[PageCache, str]:
    """Begin a process's step in a world's files and return them and the path; the process may die first."""
    world, name = _locate(path)
    world.on_file_step()
    return world.files, name


class SimulatedFiles(LocalFiles):
    """The operating system's file operations that connectors use."""

    def exists(self, path: str) -> bool:
        world, name = _locate(path)
        return name in world.files.files or world.files.is_directory(name)

    def is_directory(self, path: str) -> bool:
        world, name = _locate(path)
        return world.files.is_directory(name)

    def list_directories(self, path: str) -> list[str]:
        world, name = _locate(path)
        return [f"{path.partition('/')[0]}/{directory}" for directory in world.files.list_directories(name)]

    def make_directory(self, path: str) -> None:
        cache, name = _step(path)
        cache.make_directory(name)

    def remove_directory(self, path: str) -> None:
        cache, name = _step(path)
        cache.remove_directory(name)

    def replace(self, source: str, target: str) -> None:
        cache, old = _step(source)
        world, new = _locate(target)
        if old not in cache.files:
            raise MissingPathError(source)
        if not cache.is_directory(new.rpartition("/")[0]):
            raise MissingPathError(target)
        cache.rename(old, new)
        if old in world.held:
            world.held[new] = world.held.pop(old)

    def sync_file(self, file: BinaryIO) -> None:
        cast(Any, file).sync()

    def sync_directory(self, path: str) -> None:
        cache, name = _step(path)
        if not cache.is_directory(name):
            raise MissingPathError(path)
        cache.sync_directory(name)

    def hold(self, file: BinaryIO, path: str) -> bool:
        world, name = _locate(path)
        world.held[name] = world.process()
        return True

    def remove_unless_held(self, path: str) -> bool:
        world, name = _locate(path)
        if name in world.held and world.is_alive(world.held[name]):
            return False
        cache, name = _step(path)
        cache.unlink(name)
        return True


class _Stream:
    """A file being written. Once it is removed, its bytes are dropped."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._size = 0
        self.local_files = FILES
        cache, name = _step(path)
        cache.write(name, b"")

    def write(self, data: Any) -> int:
        """Add bytes."""
        cache, name = _step(self._path)
        if name in cache.files:
            cache.write(name, cache.files[name] + bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._size

    def sync(self) -> None:
        """Make the bytes durable."""
        cache, name = _step(self._path)
        if name in cache.files:
            cache.sync_file(name)

    def flush(self) -> None:
        """Do nothing: all bytes are already in the page cache."""

    def close(self) -> None:
        """Release the file."""
        world, name = _locate(self._path)
        world.held.pop(name, None)


class SimulatedFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The file system described above."""

    protocol = (PROTOCOL, "file")
    local_files = SimulatedFiles()

    def _open(self, path: str, mode: str = "rb", **more: Any) -> Any:
        return _Stream(path) if mode == "wb" else io.BytesIO(self.cat_file(path))

    def info(self, path: str, **more: Any) -> dict[str, Any]:
        world, name = _locate(self._strip_protocol(path))
        data = world.files.files.get(name)
        if data is not None:
            return {"name": path, "size": len(data), "type": "file"}
        if world.files.is_directory(name):
            return {"name": path, "size": 0, "type": "directory"}
        raise MissingPathError(path)

    def find(self, path: str, **more: Any) -> list[str]:
        path = self._strip_protocol(path)
        world, name = _locate(path)
        return sorted(f"{path.partition('/')[0]}/{file}" for file in world.files.below(name))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **more: Any) -> bytes:
        world, name = _locate(self._strip_protocol(path))
        if name not in world.files.files:
            raise MissingPathError(path)
        return world.files.files[name][start:end]

    def rm_file(self, path: str) -> None:
        cache, name = _step(self._strip_protocol(path))
        if name not in cache.files:
            raise MissingPathError(path)
        cache.unlink(name)


FILES: Final = SimulatedFileSystem.local_files
fsspec.register_implementation(PROTOCOL, SimulatedFileSystem)
