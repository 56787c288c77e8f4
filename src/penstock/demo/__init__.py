"""The demo: a job with real flights on Spark that loses a worker and still produces correct results (`penstock demo`).

Read `program`, the job, first. `data` prepares its input, and `pacing` slows the source down to a replay. `run` runs
the whole demo; `watch` follows the job and kills a worker. `spark_sql` and `plain_python` compute the same answer
without Penstock, and `answers` compares the two. `live` and `report` display progress and results.
"""
