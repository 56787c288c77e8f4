"""Keyed and operator state: descriptors, key groups, backends, snapshots.

A backend (`backend`) holds tables, `namespace -> key -> value`, that record what changed, and the states on
top. Timers are tables as well. The backends are that on the heap, in `backend`, and `rocksdb`; only the
latter touches files, below a directory that it is given. State of SQL whose rows are only added is a table of
columns (`key_columns`); the backend decides where they lie (`store_columns`, `allocate`).

Keys are hashed by value into key groups (`keys`), so state can be redistributed at another parallelism. All
operators use one equality and one total order of values (`equality`). A snapshot is a history of Arrow files,
the same for every backend (`snapshot`); a capture, whether of keys, operators or channels, stores itself or is
discarded. A state has a schema (`schema`), and each file lists the classes that its pickles name (`loading`),
so that a changed program can read it.
"""
