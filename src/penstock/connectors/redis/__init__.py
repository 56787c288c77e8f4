"""Redis and Valkey: a sink of commands (`sink`), a source of streams (`stream_source`), and their connections."""
