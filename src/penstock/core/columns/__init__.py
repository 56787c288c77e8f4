"""Columns: records as Arrow record batches, and operators that process them with (vectorised) kernels.

A `ColumnBatch` is a batch like any other: an operator that asks for its `values` gets rows. Operators that support
columns use them directly. If a source, a filter, an exchange and a window all do so, no record ever becomes a Python
object.

Expressions (`expressions`) describe columns to compute and aggregates of groups of records; `aggregates` computes the
latter. An aggregate is kept as *partials*: columns that kernels compute from records and merge with each other, and
that an expression turns into the result. So the state is a table of partials, and a snapshot is that same table.
"""
