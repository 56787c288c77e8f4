"""Where tests keep checkpoints and savepoints: a local directory, or what `--store` names (see docs/testing.md)."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Final, cast

import fsspec
import pytest
from upath import UPath

#: What `--store` takes.
STORES: Final = ("local", "s3", "gs", "abfs", "webhdfs")
#: What jobs in virtual time are configured with, unless they say otherwise (see the fixture `checkpoints_in_store`).
OPTIONS_OF_STORE: dict[str, Any] = {}


def is_proof_in_store(item: pytest.Item, is_s3: bool) -> bool:
    """Whether a test keeps its checkpoints where `--store` says; if that is S3, also those that use it anyway."""
    parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
    # Not by `in` alone: a parameter may be an expression, which has no truth value.
    in_s3 = any(isinstance(value, str) and value == "s3://" for value in parameters)
    return (in_s3 and is_s3) or "new_store_directory" in getattr(item, "fixturenames", ())


def at(path: str | Path) -> Path:
    """A path of any file system as a `Path` that looks anew each time, whatever others have listed before."""
    text = str(path)
    if "://" not in text:
        return Path(text)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "UPath '.*' filesystem not explicitly implemented")  # webhdfs
        return cast("Path", UPath(text, use_listings_cache=False))


def copy_tree(source: str | Path, target: str | Path) -> None:
    """Copy a directory and all below it to a place that does not exist, in the same file system."""
    fs, path = fsspec.core.url_to_fs(str(source), use_listings_cache=False)
    goal = fs._strip_protocol(str(target))
    for file in fs.find(path):
        copy = f"{goal}{file.removeprefix(path)}"
        fs.makedirs(fs._parent(copy), exist_ok=True)
        fs.copy(file, copy)


def put_tree(source: Path, target: Path) -> None:
    """Copy a local directory of files into any file system."""
    fs, path = fsspec.core.url_to_fs(str(target))
    fs.makedirs(path, exist_ok=True)
    for file in source.iterdir():
        fs.pipe_file(f"{path}/{file.name}", file.read_bytes())


def remove_tree(directory: str | Path) -> None:
    """Delete a directory and all below it, if it exists."""
    fs, path = fsspec.core.url_to_fs(str(directory), use_listings_cache=False)
    if fs.exists(path):
        fs.rm(path, recursive=True)
