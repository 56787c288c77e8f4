"""Process table functions: the user's code between tables, with state and timers of its own.

A call is the node `ProcessTableFunction`. `plan` decides what its tables must bring: inserts alone unless an argument
supports updates; then updates by key if PARTITION BY has an upsert key of the table, and updates with both rows
otherwise. The function says by `get_changelog_mode` what it emits.

`operator` calls the function. Tables with row semantics keep nothing and are not partitioned. Tables with set semantics
are partitioned by PARTITION BY, or are one partition, and all tables of a call share the state of a partition. The
step's uid is that of the call, so state outlives any other change of the query.

**State.** Each entry is a keyed state under its own name: value, list or map state with a time to live. A value is a
`Row`, see `user_functions.signature`. It is written after each call, unless it is the same as before; a value with
parts that change in place always is.

**Time.** `on_time` names the event time of a table, which `time()` returns and which the result has as `rowtime`. Rows
are processed as they arrive, late ones too. With ORDER BY they wait for the watermark, and late rows are dropped. When
a watermark arrives, rows that waited go first, then timers.

**Timers.** The timers of a partition are a map: from a name to its time, and for unnamed timers from the time to
itself. A `TimerQueue` each has the times of unnamed and of named timers by partition; a partition that is due looks up
which of its timers fire. As in Flink, a watermark fires unnamed timers first.
"""
