"""Reads and signs savepoints with the key of `penstock.checkpoints.signing-key`."""

from __future__ import annotations

import os

import fsspec

from penstock.base.errors import CheckpointError, ConfigurationError
from penstock.base.options import SIGNING_KEY
from penstock.drivers.settings.defaults import default_configuration
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.files import absolute_url
from penstock.storage.metadata import StateFile
from penstock.storage.signatures import parse_signing_key


def configured_store(job_id: str, inline_bytes_max: int) -> FileCheckpointStore:
    """Return a store for savepoints, with the key of `config.yaml` or the command line, if any."""
    key = parse_signing_key(default_configuration().read(SIGNING_KEY))
    return FileCheckpointStore(None, job_id, inline_bytes_max, key=key)


def sign_savepoint(path: str, target: str, key: str | None = None) -> str:
    """Copy a savepoint or checkpoint into a new directory and sign it. Existing signatures are not checked.

    A job that ran without `penstock.checkpoints.signing-key` can continue with it from the copy. Sign only savepoints
    that you trust.

    Args:
        path: the directory of the savepoint or checkpoint, in any fsspec file system.
        target: a directory that does not exist or is empty.
        key: 16 characters or more; by default the option's value in `config.yaml`.

    Returns:
        The directory of the signed savepoint.

    Raises:
        CheckpointError: if `path` holds no complete savepoint or checkpoint, or `target` is not empty.
        ConfigurationError: if the key is missing or too short.
    """
    secret = parse_signing_key(key if key is not None else default_configuration().read(SIGNING_KEY))
    if secret is None:
        raise ConfigurationError(f"set {SIGNING_KEY.key()}, or give a key")
    source = FileCheckpointStore(None, "", 0)
    metadata = source.load(str(path))
    where = absolute_url(str(target))
    fs, directory = fsspec.core.url_to_fs(where)
    if fs.exists(directory) and fs.ls(directory):
        raise CheckpointError(f"{where} already exists and is not empty: name a new directory")
    signed = FileCheckpointStore(None, metadata.job_id, 0, key=secret)

    def copied(file: StateFile) -> StateFile:
        if file.path is None:
            return file
        return signed.write(metadata.checkpoint_id, os.path.basename(file.path), source.read(file), where)

    try:
        signed.complete(metadata.with_files(copied), where)
    except BaseException:
        signed.discard_savepoint(where)
        raise
    return where
