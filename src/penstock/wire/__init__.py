"""Messages between processes: layout, codecs and bounds; no sockets, no threads, no clock.

Everything here works on plain values and bytes, so it can be tested without a network and used by any transport:

- `messages`: typed control messages, usually one frame each.
- `payload`: batches of records as one pickle, with large buffers beside it.
- `buffers`: whole buffers (batches and events), split if they are too large for one message, and joined again.
- `streams`: buffers and credits on one connection, numbered, so that a loss is always detected.

Rules. A version byte opens every message. Lengths, counts and nesting are checked before memory is allocated. Invalid
input from a peer raises `ProtocolError` and nothing else. Records are unpickled in `payload.decode_batches` only, which
may be called only with bytes from an authenticated peer.
"""
