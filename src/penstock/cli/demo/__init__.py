"""The demo: a job with real flights on Spark that loses a worker and still produces correct results.

`penstock demo` runs it. Read `program`, the job, first; it also slows the source down to a replay. `flights`
prepares the input. `run` runs the whole demo and computes the same answer with Spark SQL; `progress` follows
the job, kills a worker and displays the figures. `answers` computes the answer in plain Python, and compares
and prints the results.
"""
