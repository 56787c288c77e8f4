"""Table connectors: turn a table's options into sources and sinks."""
