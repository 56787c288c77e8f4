"""Printed output of functions: written to its usual stream, and to a file of limited size."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOBase
from pathlib import Path
from typing import Any, TextIO, cast


class OutputFile:
    """Printed output in two files: a full file replaces the older one, so the newest output is always kept."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        self._path = path
        self._older = path.with_name(path.name + ".1")
        self._half = max(1, bytes_max // 2)
        self._lock = threading.Lock()
        self._file = path.open("ab")
        self._size = path.stat().st_size

    def write(self, text: str) -> None:
        """Append text. Thread-safe."""
        data = text.encode(errors="backslashreplace")[-self._half :]
        with self._lock:
            if self._file.closed:
                return
            if self._size + len(data) > self._half:
                self._file.close()
                self._path.replace(self._older)
                self._file, self._size = self._path.open("ab"), 0
            self._file.write(data)
            self._size += len(data)

    def read(self) -> bytes:
        """Return all output that is kept."""
        with self._lock:
            if not self._file.closed:
                self._file.flush()
            older = self._older.read_bytes() if self._older.exists() else b""
            return older + self._path.read_bytes()

    def flush(self) -> None:
        """Flush the file to disk."""
        with self._lock:
            if not self._file.closed:
                self._file.flush()

    def close(self) -> None:
        """Close the file; later text is ignored."""
        with self._lock:
            self._file.close()


class Tee(TextIOBase):
    """A stream that also writes its text to a file. Other attributes, such as the descriptor, come from the stream."""

    def __init__(self, stream: TextIO, file: OutputFile) -> None:
        self._stream = stream
        self._copy = file

    def write(self, text: str) -> int:
        written = self._stream.write(text)
        try:
            self._copy.write(text)
        except OSError:  # a full disk must not make a user's print fail
            self._copy.close()
        return written

    def flush(self) -> None:
        self._stream.flush()
        try:
            self._copy.flush()
        except OSError:
            self._copy.close()

    def writable(self) -> bool:
        return True

    def __getattribute__(self, name: str) -> Any:
        if name in ("buffer", "encoding", "errors", "fileno", "isatty", "mode", "name", "newlines", "reconfigure"):
            return getattr(object.__getattribute__(self, "_stream"), name)
        return super().__getattribute__(name)


@contextmanager
def printed_into(file: OutputFile) -> Iterator[None]:
    """Copy this process's stdout and stderr to the file in this context."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast("TextIO", Tee(out, file)), cast("TextIO", Tee(err, file))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err
