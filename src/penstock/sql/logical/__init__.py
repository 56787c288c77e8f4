"""Logical plans: typed expressions, nodes, and what follows from them.

`nodes` has the nodes, the schema of their output and changelog modes; `explain` their text. `properties` has
their identity: the state id of a step is a hash of its node and of everything that it reads, without names and
options. So state continues with the query that wrote it, whatever else the job does. `records` converts between
stream records and columns.
"""
