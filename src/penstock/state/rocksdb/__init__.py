"""Keyed state in an embedded RocksDB: state larger than memory, and snapshots that write only new files (D3, G7).

Read in this order. `rows`: how an entry lies in the store. `store`: the store itself. `cache` and `pane`: what keeps
hot keys in memory, and when it drops them. `table`, `maps` and `lists`: the states. `backend`: all of it together.
`capture`: checkpoints by hard links. `canonical`: the format that all backends share. `rescale`: files of other
subtasks. `sweeper`: how expired rows go. `classes` and `rewriting`: what happens to rows that were written under other
classes or declarations. `budget` and `memory`: what the stores of a worker share.

This is the one package of `penstock.state` that touches files, all of them below a directory that it is handed.
"""
