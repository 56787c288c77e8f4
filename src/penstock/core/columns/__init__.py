"""Columns: records as Arrow record batches, and operators that work on them by kernel (vectorised).

A `ColumnBatch` is a batch like any other: whoever asks for its `values` gets rows. Operators that know columns take
them as they are, so a source, a filter, an exchange and a window that all do never make a Python object of a record.

Expressions (`expressions`) say what is computed of columns, and what of a group of records; `aggregates` computes the
latter. An aggregate is kept as *partials*: columns that kernels make of records, that kernels merge with each other,
and that an expression turns into the result. So state is a table of partials, and a snapshot is that table as it is.
"""
