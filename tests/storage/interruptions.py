"""Writers that die as they make something visible."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from typing import Any

import pytest

from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.metadata import METADATA_NAME


def before_metadata(patched: pytest.MonkeyPatch, store: FileCheckpointStore, call: Callable[[str], None]) -> None:
    """Call `call`, which may raise, with each path of metadata that is about to become visible."""
    fs = store._fs  # the same object for all of its protocol
    link, pipe_file = os.link, fs.pipe_file

    def link_after(source: str, target: str) -> None:
        if posixpath.basename(target) == METADATA_NAME:
            call(target)
        link(source, target)

    def pipe_file_after(path: str, data: bytes, **options: Any) -> None:
        if posixpath.basename(path) == METADATA_NAME:
            call(path)
        pipe_file(path, data, **options)

    patched.setattr(os, "link", link_after)
    patched.setattr(fs, "pipe_file", pipe_file_after)


def killed(path: str) -> None:
    raise OSError(f"killed before {path}")
