"""Columns: records as Arrow record batches, and operators that process them with (vectorised) kernels.

A `ColumnBatch` is a batch whose values are an Arrow record batch and whose timestamps are an array. Code
between operators slices, splits, sends and stores it like any other batch. An operator that asks for its
`values` gets rows; one that supports columns uses them directly. If a source, a filter, an exchange and a
window all do so, no record ever becomes a Python object.

The hash partitioner hashes each distinct key of a batch once, by the same hash as for all keys; a kernel sorts
the records by channel, and the batch is cut at the channel boundaries. On the wire a column batch is its Arrow
IPC message, out of band. A filter that keeps most rows emits chosen columns (`penstock.codecs.column_data`),
which are cut when they are read: columns that are never read are never copied.

Expressions (`expressions`) describe columns to compute and aggregates of groups of records. An aggregate is
kept as *partials*: columns that kernels compute from records and merge with each other, and that an expression
turns into the result. So the state of a window is a table of partials, a watermark merges the ones that are
due, and a snapshot is that same table, with the key group of each row (`penstock.state.key_columns`).
"""
