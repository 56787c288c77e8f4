"""Plans in BATCH: a logical plan becomes Spark SQL, so that Spark's optimiser, joins and shuffle do the work.

Each node becomes a SELECT, and these nest, so Spark's optimiser sees one query (`planning`; the functions for
each kind of node are in `executor.QUERIES`). Consecutive joins are one FROM, because Spark looks for their
order; joins that only drop rows are IN and EXISTS, and a side of one row is a query in the place of its column
(`chains`). Tables go by their names in Spark. So Spark's plan is the one for the same SQL.

The table `native.NATIVE` lists the functions that Spark evaluates exactly like Penstock, with their types; a
test compares both at all edge values. Any other expression is a step on Arrow inside Spark's tasks (`kernels`),
by the functions of `penstock.sql.functions`. Aggregates that Spark lacks gather their operands for the
accumulators of streams (`aggregates`). An INSERT is a batch job that reads the query.
"""
