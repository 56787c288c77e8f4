"""Runs plans as streams: the changelog mode of each step, and the operators that process columns.

`executor` starts a job for a plan, and `planner` translates the plan. A rule for each kind of node
(`planning.rule`) states its changelog mode, whether its inputs must include UPDATE_BEFORE, and its steps. The
planner first asks for changelog modes, from the sources to the sinks; then, from the sinks to the sources,
whether updates must include the previous row. A sink that does not accept the changes is refused, with the step
that emits them. Each feature has a package with its rule (`plan`), its operators and their state.

Operators keep state by the partitioning key of their rows, so a savepoint fits any parallelism. Parts of plans
that produce the same rows become one part of the job. A step's id does not depend on names or options
(`penstock.sql.logical.properties`). A retraction may arrive before its insert.

For append-only input, state is columns and no row becomes a Python object (`joins.regular`, `joins.window`,
`ranking.indexed_last_row`, `ranking.indexed_top_n`). Group aggregates have their state in columns by the number of the
group, for any input (`groups.columnar`). With RocksDB the columns are in mapped files, except those of window joins and
group aggregates, whose rows and groups are stored by key. The forms of a step continue from each other's state. Window
aggregates whose calls kernels compute keep partials as columns (`windows.columnar`).
"""
