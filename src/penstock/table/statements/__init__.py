"""What statements do: one module for each subject, and `run` to find the right one.

Each module has `HANDLERS`: for a class of `penstock.table.sql.statements`, a function of the session and the statement
that gives a `TableResult`.
"""
