"""File sources and sinks for any file system that fsspec supports."""
