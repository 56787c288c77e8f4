"""The SQL engine: parser, analyzer, optimizer, and the two ways to run a plan, as a stream and as Spark SQL.

SQL text becomes syntax (`parser`), the analyzer makes a logical plan of it (`analyzer`, `logical`), and the
executor of the mode runs the plan. For streams it is rewritten (`optimizer`), and each node becomes operators
with changelog modes (`stream`). In batch it becomes one query of Spark SQL (`spark`), which Catalyst optimizes.
The Table API builds the same syntax, so there is one analyzer.

| package | contents |
| --- | --- |
| `parser`, `analyzer`, `optimizer` | text to syntax, syntax to plans, plans to better plans |
| `data`, `datetime_format` | logical types, Arrow columns, values, points in time |
| `typed`, `expressions` | typed expressions, and their evaluation on columns |
| `functions`, `user_functions` | built-in and user-defined functions |
| `logical` | plan nodes, their properties and their text |
| `stream`, `spark` | streams and batches |
| `tables`, `connectors`, `formats` | how tables are read, written and encoded |
| `catalogs`, `session`, `statements` | where tables are found, and what each statement does |
"""
