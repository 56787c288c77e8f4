"""Rewrites logical plans for streams, so that the same rows take less work; in batch, Spark's Catalyst does this.

`optimizer.rewritten` applies them in this order:

| rewrite | module |
| --- | --- |
| filters move down as far as the rows stay the same | `pushdown`, `join_conditions` |
| bounds on ROW_NUMBER become top-Ns | `top_n` |
| joins FOR SYSTEM_TIME AS OF a processing time become lookups | `lookup_join` |
| filters go into tables that support them | `pushdown` |
| columns, then fields of rows, that are never read are dropped | `pruning` |
| event time ends where rows may be late | `time_attributes` |
| consecutive projections are merged | `pushdown` |
| limits go into tables | `pushdown` |

The planner of streams then replaces processing times of rows that may be retracted (`time_attributes`).
"""
