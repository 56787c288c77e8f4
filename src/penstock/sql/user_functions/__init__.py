"""User-defined functions: their definitions, their life cycle in subtasks, and their evaluation on columns.

A function is an object that a call carries, not a name (`penstock.sql.typed.UserCall`). Operators that evaluate
expressions open and close it (`penstock.sql.stream.rows.state_ttl`). None runs while a query is planned.
"""
