"""What of Spark's checkpoint location goes into an archive, and comes out of it (G8, I1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.base.errors import PenstockError
from penstock.drivers.spark.structured_streaming import archive_position, lay_out

#: A location while batch 12 is worked on: source 0 is a log of files, source 1 has its first offsets only.
LOCATION = [
    "metadata",
    ".metadata.crc",
    *(f"offsets/{n}" for n in range(13)),
    "offsets/.12.crc",
    *(f"commits/{n}" for n in range(12)),
    *(f"sources/0/{n}" for n in range(9)),
    "sources/0/9.compact",
    "sources/0/.9.compact.crc",
    "sources/0/10",
    "sources/0/11",
    "sources/1/0",
]


def fill(location: Path, names: list[str]) -> Path:
    for name in names:
        path = location / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"what is in {name}")
    return location


def list_query_files(location: Path) -> list[str]:
    return sorted(path.relative_to(location).as_posix() for path in location.rglob("*") if path.is_file())


def moved(location: Path, batch_id: int, target: Path) -> list[str]:
    lay_out(archive_position(location, batch_id), target)
    return list_query_files(target)


def test_a_batch_is_given_again_since_its_commit_is_missing(tmp_path: Path) -> None:
    """The ends of the batch and of the one before, no commits; of a log of files what is not compacted."""
    location = fill(tmp_path / "old", LOCATION)
    expected = ["metadata", "offsets/11", "offsets/12", "sources/0/10", "sources/0/11", "sources/0/9.compact"]
    assert moved(location, 12, tmp_path / "new") == [*expected, "sources/1/0"]
    assert (tmp_path / "new" / "offsets" / "12").read_text() == "what is in offsets/12"


def test_the_first_batch_has_none_before(tmp_path: Path) -> None:
    """Sources without notes of their own have no directory."""
    location = fill(tmp_path / "old", ["metadata", "offsets/0"])
    assert moved(location, 0, tmp_path / "new") == ["metadata", "offsets/0"]


def test_what_is_no_log_is_kept_whole(tmp_path: Path) -> None:
    """A source may keep files of other names, and directories."""
    names = ["metadata", "offsets/0", "sources/0/3", "sources/0/3.compact", "sources/0/notes", "sources/0/deep/1"]
    location = fill(tmp_path / "old", names)
    names.remove("sources/0/3")
    assert moved(location, 0, tmp_path / "new") == sorted(names)


def test_state_of_spark_is_refused(tmp_path: Path) -> None:
    """A position is not all that an aggregation in Spark needs to go on."""
    location = fill(tmp_path, ["metadata", "offsets/0", "state/0/0/1.delta"])
    with pytest.raises(PenstockError, match=r"move that part after from_dataframe\(\)"):
        archive_position(location, 0)


def test_the_same_position_gives_the_same_bytes(tmp_path: Path) -> None:
    """Nothing of the time or the place is in it."""
    one, other = fill(tmp_path / "one", LOCATION), fill(tmp_path / "other", LOCATION)
    assert archive_position(one, 12) == archive_position(other, 12)
