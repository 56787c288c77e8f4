"""Types and values of columns: logical types, Arrow, conversions, points in time, errors.

A type describes the values of a column; columns are Arrow (`arrow`). The keys of maps may be NULL, which
Arrow's own maps refuse, so a key is a struct of one field (`penstock.codecs.arrow_columns`). Files, functions
of whole columns and other programs exchange plain maps, and `exact_cast` converts between the two. Outside of
columns, values are Python's, and points in time are integers, because Python's own have neither nanoseconds nor
all years.

**Equality and order.** All operators use one equality and one total order (`penstock.state.equality`): in state
keys, retractions, groups, DISTINCT, join keys, set operations, top-N, OVER, aggregates and sorting, in every
execution mode. Columns get their canonical form by kernels, Python values by a function for their type; both
are chosen by the type while an operator is built, and types without floats and maps are not examined. A row in
state keeps its original form, and is retracted in that form. A value that represents several equal ones has the
canonical form: the key of a group, MIN and MAX, and each value of COLLECT or of a DISTINCT aggregate. State of
an earlier release may hold rows in other forms; a retraction without a match looks for an equal row. The
operators `=`, `<>`, `<` and the like compare plain floats by IEEE 754 instead, as in Flink, where NaN equals
nothing; batch queries ask Spark accordingly (`penstock.sql.spark.native`).
"""
