"""MongoDB: a source of documents in ranges of their ids, and a sink of bulk requests."""
