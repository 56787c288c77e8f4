"""Executes statements: one module for each subject, and `run` to dispatch to them.

Each module has `HANDLERS`, which maps a class of `penstock.sql.parser.statements` to a function that takes the session
and the statement and returns a `TableResult`.
"""
