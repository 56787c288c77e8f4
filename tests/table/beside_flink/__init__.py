"""SQL programs on Penstock and on a real Flink: `python -m tests.table.beside_flink FILE`."""
