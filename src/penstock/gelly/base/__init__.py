"""Foundations of graphs: elements, streams, operators in lockstep.

A graph is two bounded streams, and its methods join and co-group them (`streams`). Iterations over vertices are
not made of batch jobs, because each superstep would read, shuffle and write data that never changes. They run
in lockstep: one operator holds the graph, each subtask a partition of it, and between supersteps only messages
move.

- Such an operator (`penstock.runtime.operators.lockstep`) has a generator, `rounds`, that begins when its input
  has ended. It yields what goes to each other subtask and a small report, and gets what arrived and all
  reports. So a loop of supersteps is written as a loop, without IO.
- The driver does the exchange. In the local driver the subtasks take turns and hand objects over. On Spark they
  are a barrier stage with sockets (`penstock.drivers.spark.lockstep`).
- The loop is a batch job of its own, and its result a cached stream, as after an iteration without supersteps.
- Edges and vertices are distributed once, to the owner of their id (`streams.assign_owner`).

Two operators are built on it. One calls users' functions for each active vertex, with its edges and messages
(`penstock.gelly.supersteps`). The other runs kernels over arrays (`penstock.gelly.columnar`).
"""
