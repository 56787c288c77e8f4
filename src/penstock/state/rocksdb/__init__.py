"""Keyed state in an embedded RocksDB: state larger than memory, and snapshots that write only new files (D3, G7).

Read in this order. `store`: the store and the layout of an entry. `cache` and `pane`: keep hot keys in memory,
and decide when to drop them. `table` and `collections`: the states, and the removal of expired rows. `backend`:
combines them. `snapshot`: checkpoints by hard links, and files of other subtasks. `canonical`: the format that
all backends share, and rows that were written under other classes or declarations. `blocks`: state in columns, in
mapped files beside the store. `budget` and `settings`: the
memory shared by the stores of a worker.

This is the only package of `penstock.state` that touches files, all of them below a directory that it is given.
"""
