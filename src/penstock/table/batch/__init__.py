"""Plans in BATCH: a logical plan becomes Spark SQL, so that Spark's optimiser, joins and shuffle do the work.

Where Spark's results would differ from `penstock.table.functions`, these functions run on Arrow inside Spark's tasks.
"""
