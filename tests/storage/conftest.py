"""Where files of checkpoints are kept in these tests: each of them runs in all of these file systems."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest


@pytest.fixture(params=["local", "file://", "memory://", "s3://"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A directory in some file system, in which anything may be left."""
    if request.param == "s3://":
        yield f"{request.getfixturevalue('s3').new_bucket()}/{uuid.uuid4().hex}"
        return
    prefix = {"local": "", "file://": "file://", "memory://": "memory:/"}[request.param]
    path = f"{prefix}{tmp_path}/{uuid.uuid4().hex}"
    yield path
    fs, directory = fsspec.core.url_to_fs(path)
    with contextlib.suppress(FileNotFoundError):
        fs.rm(directory, recursive=True)
