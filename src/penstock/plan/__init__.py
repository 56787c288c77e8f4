"""Translation of a program to a job graph: ids, chaining, parallelism.

`env.execute()` turns the transformations that a program has added (`transformation`) into a stream graph:
operators with ids and parallelism, edges with partitioners. A transformation holds a node that says what its
operator does; where several operators can do it, the plan chooses, for speed only. The stream graph becomes a
job graph (`job_graph`), whose vertices are chains of forward neighbours of equal parallelism. All functions are
serialised here, so one that cannot be serialised is found before anything runs.

The job master makes the execution graph from it (vertices, subtasks, attempts) and sends each subtask to a
worker. Subtask i of every vertex shares slot i, so a job needs as many workers as its highest parallelism, and
forward edges never leave a process. With several slot sharing groups, this holds within each.
"""
