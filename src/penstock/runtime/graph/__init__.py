"""The job graph, and the execution graph: subtasks, their attempts, and the legal transitions of their states."""
