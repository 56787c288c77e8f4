"""Table formats: how rows are encoded as bytes, in files and in messages."""
