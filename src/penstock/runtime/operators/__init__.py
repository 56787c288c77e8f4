"""Operators, by family; `base` has the interface that all share, and the order of the calls.

| family | contents |
| --- | --- |
| `record` | stateless operators, process functions, two inputs, broadcast state |
| `keyed` | running aggregates and reductions, interval joins |
| `window` | windows record by record: a fast operator for aligned windows, sessions, and the general one |
| `columnar` | expressions and windows on batches of columns |
| `patterns` | event patterns: the engine of `penstock.runtime.patterns` with keyed state and time |
| `calls` | asynchronous calls |
| `source`, `sink` | the head and the tail of a job |

Shared by all: timers, watermarks, the context of a task (`function_context`), and the treatment of results
(`results`, `emitting`). `lockstep` is for operators whose subtasks exchange messages round after round, such as
the supersteps of graphs.

An operator keeps its state in the backends of its context, so snapshots and restores need no further code.
Where several operators can do the same work, the plan chooses (`penstock.plan.transformation`); the choice
affects speed only, and each operator starts from the state that the others wrote.
"""
