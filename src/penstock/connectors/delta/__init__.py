"""Delta Lake tables as sources and sinks."""
