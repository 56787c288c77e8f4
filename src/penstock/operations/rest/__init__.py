"""Flink's REST API over the jobs of this process, off unless a configuration asks for it.

`server` listens in a thread of its own, `application` has the guards and the table of routes, `handlers` answer, each
area in a file, and `shapes` are what they answer with: typed values made from the view of a job.
"""
