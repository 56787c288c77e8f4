"""The functions of SQL: their operands, their result types, and their kernels on whole columns.

A definition (`definition`) specifies the operands of a function, their casts, the result type, and how the
kernel of a call is built. Kernels are Arrow's where there is one, otherwise a Python call for each distinct
value. Each module lists its functions in `FUNCTIONS`; `registry` joins them by name. `aggregates` defines
aggregate functions, whose accumulators are in `penstock.sql.stream.aggregates`.
"""
