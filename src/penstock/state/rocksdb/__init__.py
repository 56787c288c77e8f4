"""Keyed state in an embedded RocksDB: state larger than memory, and snapshots that write only new files (D3, G7).

Read in this order. `rows`: the layout of an entry in the store. `store`: the store itself. `cache` and `pane`: keep hot
keys in memory, and decide when to drop them. `table`, `maps` and `lists`: the states. `backend`: combines them.
`capture`: checkpoints by hard links. `canonical`: the format that all backends share. `rescale`: files of other
subtasks. `sweeper`: the removal of expired rows. `classes` and `rewriting`: the treatment of rows that were written
under other classes or declarations. `budget` and `memory`: the memory shared by the stores of a worker.

This is the only package of `penstock.state` that touches files, all of them below a directory that it is given.
"""
