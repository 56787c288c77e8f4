"""Columns: records as Arrow record batches, and operators that work on them by kernel (vectorised).

A `ColumnBatch` is a batch like any other: an operator that asks for its `values` gets rows. Operators that know columns
take them as they are. When a source, a filter, an exchange and a window all do, no record ever becomes a Python object.

Expressions (`expressions`) say what is computed from columns, and what from a group of records; `aggregates` computes
the latter. An aggregate is kept as *partials*: columns that kernels make from records and merge with each other, and
that an expression turns into the result. So state is a table of partials, and a snapshot is that table as it is.
"""
