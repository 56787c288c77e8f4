"""The job graph, and the execution graph: subtasks, their attempts, and the legal moves of their states."""
