"""Plans in BATCH: a logical plan becomes Spark SQL, so that Spark's optimiser, joins and shuffle do the work.

What Spark would answer otherwise than the functions of `penstock.table.functions` runs in these, on Arrow, inside of
Spark's tasks.
"""
