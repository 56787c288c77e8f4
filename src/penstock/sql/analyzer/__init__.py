"""Semantic analysis of queries: resolves names and types every expression.

The result is a logical plan (`penstock.sql.logical.nodes`); queries that Flink refuses are refused here.
Aggregates and calls with OVER become steps of their own (`aggregates`, `select`), and queries in expressions
become joins (`subqueries`). A column that is only passed on stays a time attribute. Constant expressions are
computed here, except calls of user-defined functions: none runs during planning.
"""
