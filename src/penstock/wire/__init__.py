"""Frames between processes: layout, codecs and bounds; no sockets, no threads, no clock.

Everything here works on plain values and bytes, so that it is tested without a network and used by any transport:

- `messages`: typed control messages, one frame each.
- `payload`: batches of records as one pickle, with large buffers beside it.
- `buffers`: whole buffers (batches and events), split where they are too large for one message and joined again.
- `streams`: buffers and credits on one connection, numbered, so that a loss is noticed and never passed over.

Rules. A version byte opens every message. Lengths, counts and nesting are checked before memory is taken. What a peer
says wrongly raises `ProtocolError` and nothing else. Records are unpickled in `payload.decode_batches` only, which its
caller may only reach with bytes from an authenticated peer.
"""
