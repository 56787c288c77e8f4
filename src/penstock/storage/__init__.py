"""Checkpoints and savepoints in a file system: layout, metadata, checksums."""
