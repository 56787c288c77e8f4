"""Checkpoints and savepoints as they lie in a file system: layout, metadata, checksums."""
