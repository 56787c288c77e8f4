"""Evaluates typed expressions on columns.

An expression is compiled once to nested Python functions that run for each batch (`evaluator`). An operand that
may fail is evaluated only for the rows that need it (`columns`). Subexpressions that occur twice in an operator
run once for each batch (`sharing`).
"""
