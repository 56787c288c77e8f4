"""What may be deleted of a job's checkpoints: nothing that anyone needs, and everything else."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from penstock.storage.metadata import (
    METADATA_NAME,
    CheckpointMetadata,
    KeyedStateHandle,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    StateFile,
    garbage,
)


def build_path(checkpoint_id: int, name: object) -> str:
    return f"/checkpoints/job/chk-{checkpoint_id}/{name}"


def build_metadata(checkpoint_id: int, paths: list[str]) -> CheckpointMetadata:
    """A checkpoint that refers to files in all the ways there are, and to inline state."""
    files = [StateFile(1, 0, path) for path in paths] + [StateFile(1, 0, data=b"x")]
    keyed: Any = {"k": (KeyedStateHandle(0, 127, tuple(files[::3])),)} if files[::3] else {}
    lists: Any = {f"l{i}": (OperatorStateHandle("split", 1, file),) for i, file in enumerate(files[1::3])}
    coordinator = files[2] if len(files) > 2 else None
    rest = OperatorSubtaskState({"r": (KeyedStateHandle(0, 127, tuple(files[5::3])),)}, {})
    operators = (
        OperatorState("one", None, "one", 2, 128, {0: OperatorSubtaskState(keyed, lists)}, (), coordinator),
        OperatorState("two", None, "two", 2, 128, {1: rest}),
    )
    return CheckpointMetadata(checkpoint_id, "job", "name", 0, False, operators)


@pytest.mark.slow
@settings(deadline=None, max_examples=400)
@given(st.data())
def test_against_the_definition(data: st.DataObject) -> None:
    """G6, G11: never a file that a kept checkpoint or a base of a pending one refers to, nor its metadata, nor what is
    in the making; all else goes, metadata first."""
    count = data.draw(st.integers(1, 8))
    listing, all_of_them, older = set[str](), list[CheckpointMetadata](), list[str]()
    for checkpoint_id in range(1, count + 1):
        own = [build_path(checkpoint_id, n) for n in range(data.draw(st.integers(0, 3)))]
        bases = data.draw(st.lists(st.sampled_from(older), unique=True, max_size=3)) if older else []
        all_of_them.append(build_metadata(checkpoint_id, [*bases, *own]))
        orphans = [build_path(checkpoint_id, f"orphan-{n}") for n in range(data.draw(st.integers(0, 1)))]
        listing.update(own, orphans, [build_path(checkpoint_id, METADATA_NAME)])
        if data.draw(st.booleans()):
            listing.add(build_path(checkpoint_id, f".{METADATA_NAME}.part"))
        older += own
    outside = {"/checkpoints/job/epoch-3", "/checkpoints/job/chk-x/file", "/checkpoints/job/shared/chk-1"}
    kept = data.draw(st.lists(st.sampled_from(all_of_them), max_size=3, unique_by=lambda m: m.checkpoint_id))
    oldest_live_id = data.draw(st.integers(1, count + 1))

    deleted = garbage(data.draw(st.permutations(sorted(listing | outside))), kept, oldest_live_id)

    live = {p for p in listing if int(p.split("/chk-")[1].split("/")[0]) >= oldest_live_id}
    needed = {build_path(m.checkpoint_id, METADATA_NAME) for m in kept}
    needed |= {file.path for m in kept for file in m.state_files() if file.path is not None}
    assert len(deleted) == len(set(deleted))
    assert set(deleted) == listing - live - needed
    is_metadata = [path.endswith("/" + METADATA_NAME) for path in deleted]
    assert is_metadata == sorted(is_metadata, reverse=True), "what is half deleted never looks whole"
    assert garbage((listing | outside) - set(deleted), kept, oldest_live_id) == []


def test_a_revocation_stays() -> None:
    """G11: the metadata that it forbids may yet come; the state files go."""
    listing = [build_path(n, name) for n in (1, 2) for name in ("a", METADATA_NAME)]
    assert garbage(listing, [], 5, {1}) == [build_path(2, METADATA_NAME), build_path(1, "a"), build_path(2, "a")]


def test_checkpoints_are_known_by_number() -> None:
    """G6: chk-1 is not chk-10, and a name that only looks like a checkpoint is left alone."""
    listing = [build_path(1, "a"), build_path(10, "a"), "/x/achk-1/a", "/x/chk-1/deep/a", "chk-2/a"]
    assert garbage(listing, [], 5) == [build_path(1, "a"), "chk-2/a"]
