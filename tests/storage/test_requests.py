"""What checkpoints ask of an object store: few requests, whatever they hold (G6, G11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from aiobotocore.client import AioBaseClient
from botocore import xform_name
from tests.servers.s3 import S3Server

from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.metadata import CheckpointMetadata, OperatorState, OperatorStateHandle, OperatorSubtaskState

REQUESTS: Counter[str] = Counter()
FILES = 30


@pytest.fixture
def store(s3: S3Server) -> Iterator[FileCheckpointStore]:
    # All requests come through here. Some releases of s3fs do not list through `_call_s3`.
    call = AioBaseClient._make_api_call

    async def counted(client: Any, operation: str, parameters: Any) -> Any:
        REQUESTS[xform_name(operation)] += 1
        return await call(client, operation, parameters)

    store = FileCheckpointStore(s3.new_bucket(), "job", 0)
    with mock.patch.object(AioBaseClient, "_make_api_call", counted):
        REQUESTS.clear()
        yield store


def asked() -> dict[str, int]:
    """The requests since the last call, by kind."""
    found = dict(REQUESTS)
    REQUESTS.clear()
    return found


def build_metadata(store: FileCheckpointStore, checkpoint_id: int) -> CheckpointMetadata:
    files = [store.write(checkpoint_id, f"state-{n}", f"{checkpoint_id}-{n}".encode()) for n in range(FILES)]
    states: dict[str, tuple[OperatorStateHandle, ...]] = {
        f"state-{n}": (OperatorStateHandle("split", 1, file),) for n, file in enumerate(files)
    }
    operator = OperatorState("op", "op", "op", 1, 128, {0: OperatorSubtaskState(operator=states)})
    return CheckpointMetadata(checkpoint_id, "job", "job", 0, False, (operator,))


def test_a_checkpoint_is_one_request_for_each_file(store: FileCheckpointStore) -> None:
    """G6: no directory is asked for; metadata becomes visible by one conditional request."""
    metadata = build_metadata(store, 1)
    assert asked() == {"put_object": FILES}
    store.complete(metadata)
    assert asked() == {"put_object": 1}


def test_a_file_is_read_by_one_request(store: FileCheckpointStore) -> None:
    """G8: its size is known."""
    metadata = build_metadata(store, 1)
    asked()
    for file in metadata.state_files():
        store.read(file)
    assert asked() == {"get_object": FILES}


def test_an_old_checkpoint_goes_by_three_requests(store: FileCheckpointStore) -> None:
    """G6, G11: it is listed, its metadata is deleted, and then all of its files are, together."""
    store.complete(build_metadata(store, 1))
    asked()
    listing = store.listing()
    store.delete(listing)
    assert len(listing) == FILES + 1
    assert asked() == {"list_objects_v2": 1, "delete_object": 1, "delete_objects": 1}
    assert store.listing() == []


def test_a_request_whose_answer_was_lost_is_made_again(store: FileCheckpointStore) -> None:
    """G11: the client sends the metadata once more, and the store has it already: the checkpoint is complete."""
    metadata = build_metadata(store, 1)
    store.complete(metadata)
    store.complete(metadata)
    assert store.load_checkpoint(1) == metadata
