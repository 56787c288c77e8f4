"""HDFS by its REST interface (G8). Needs the package `requests`; `penstock.codecs.file_systems` says what differs."""

from __future__ import annotations

import errno
from typing import Any

from fsspec.implementations.webhdfs import WebHDFile, WebHDFS


class HadoopFiles(WebHDFS):  # type: ignore[misc]
    """A file system."""

    #: No reader sees both names, or neither.
    renames_atomically = True

    def _call(self, *arguments: Any, **settings: Any) -> Any:
        try:
            return super()._call(*arguments, **settings)
        except RuntimeError as error:  # an exception of the name node that has no class in fsspec
            raise OSError(errno.EIO, str(error)) from error

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **settings: Any) -> Any:
        return HadoopFile(
            self,
            path,
            mode=mode,
            block_size=block_size or self.blocksize,
            tempdir=self.tempdir,
            **{"autocommit": True, **settings},
        )

    def mv(self, path1: str, path2: str, replaces: bool = True, **settings: Any) -> None:
        """Rename a file.

        Raises:
            FileExistsError: if the target exists, and `replaces` is not set.
        """
        target = self._strip_protocol(path2)
        try:
            options = {"destination": target, "renameoptions": "OVERWRITE" if replaces else "NONE"}
            self._call("RENAME", method="put", path=path1, **options)
        except OSError as error:
            if not replaces and self.exists(target):
                raise FileExistsError(errno.EEXIST, "File exists", target) from error
            raise

    def rmdir(self, path: str) -> None:
        """Remove a directory, if it is empty."""
        self.rm(path)

    def unstrip_protocol(self, name: str) -> str:
        """Return the URL of a path, with the host that opened it."""
        if "://" in name:
            return name
        options = self.storage_options
        user = f"{options['user']}@" if options.get("user") else ""
        port = f":{options['port']}" if options.get("port") else ""
        return f"webhdfs://{user}{options['host']}{port}/{name.lstrip('/')}"


class HadoopFile(WebHDFile):  # type: ignore[misc]
    """An open file. A read fails if the data node answers with an error."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        start, end = max(start, 0), min(end, self.size)
        if start >= end:
            return b""
        answer = self.fs._call("OPEN", path=self.path, offset=start, length=end - start, redirect=False)
        if "Location" in answer.headers:
            answer = self.fs.session.get(self.fs._apply_proxy(answer.headers["Location"]))
            answer.raise_for_status()
        data: bytes = answer.content
        if len(data) != end - start:
            raise OSError(errno.EIO, f"{len(data)} bytes came instead of {end - start}", self.path)
        return data
