"""Files as a source and as a sink, in any file system that fsspec knows."""
