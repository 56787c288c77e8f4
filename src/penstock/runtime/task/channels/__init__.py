"""Channels between tasks: partitioners, the queues at either end, and their contents in checkpoints.

A hash edge sends a record to the owner of its key group: a stable hash of the key's value, the same in every
process (`penstock.state.keys`). Each distinct key of a batch is hashed once.

A `Subpartition` collects the output for one channel in a buffer. The buffer leaves when it is full, older than
`execution.buffer-timeout`, or when the task has nothing else to do. Without credit a flush closes no buffer: it
grows until credit arrives. So buffers are small while the consumer keeps up and large when it lags, and only
full buffers block a task. Adjacent batches of a buffer are merged before it leaves.

Each channel has its own credit, so a channel that is held back never blocks its neighbours. Credit returns with
the next buffer to the same worker; without one, the credit of all channels leaves in one message before the
worker looks at its input. A buffer for a task of the same worker goes by reference. For another worker the
sender pickles it once (protocol 5) and sends it over the one connection between the two.

An unaligned barrier overtakes what waits in a channel, needs no credit, and is handled before anything else.
The records that it overtook in the output, and those ahead of it in the input, become part of the checkpoint; a
recovery puts them back into the channels (`in_flight`).
"""
