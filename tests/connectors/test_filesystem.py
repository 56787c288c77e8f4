"""What the file connectors ask of a file system, while others work in the same directories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.servers.s3 import S3Server
from tests.stores import at

from penstock.connectors.file.filesystem import create, list_files


@pytest.mark.parametrize("removed", [".penstock", "job"])
def test_directories_that_others_remove_while_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    """A job that ends removes the staging directories in which there is nothing, and another may begin there."""
    make = os.mkdir
    times: list[str] = []

    def mkdir(path: str, mode: int = 0o777) -> None:
        make(path, mode)
        if os.path.basename(path) == removed and len(times) < 5:
            times.append(path)
            os.rmdir(path)

    monkeypatch.setattr(os, "mkdir", mkdir)
    path = tmp_path / ".penstock" / "job" / "part-0"
    create(str(path)).close()
    assert path.exists()
    assert len(times) == 5


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "nothing" / "there")
    with pytest.raises(OSError, match="out"):
        create(str(tmp_path / "out" / "below" / "part-0"))


def test_a_listing_has_what_others_have_written_since(s3: S3Server) -> None:
    """In an object store, whose client keeps listings, the second job of a process finds new files as well."""
    folder = at(s3.new_bucket())  # this one keeps none
    (folder / "1").write_text("1")
    assert len(list_files(str(folder))) == 1
    (folder / "2").write_text("2")
    assert len(list_files(str(folder))) == 2
