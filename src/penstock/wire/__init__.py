"""Messages between processes: layout, codecs and bounds; no sockets, no threads, no clock.

Everything here works on plain values and bytes, so it can be tested without a network and used by any
transport:

- `messages`: typed control messages, usually one frame each.
- `buffers`: whole buffers (batches and events), split between records if they are too large for one message,
  and joined again; the batches of a message are one pickle, with large Arrow buffers beside it.
- `streams`: buffers and credits on one connection, numbered, so that a loss is always detected. A record larger
  than a frame travels in chunks, ahead of its message, up to `penstock.network.record-bytes-max`.

Rules. A version byte opens every message. Lengths, counts and nesting are checked before memory is allocated.
Invalid input from a peer raises `ProtocolError` and nothing else. Records are unpickled in
`buffers.decode_batches` only, which may be called only with bytes from an authenticated peer.
"""
