"""The demo: real flights through a real job on Spark that loses a worker and still comes out right (`penstock demo`).

`program` is the job, and the file to read first; `data` lays out its input, `pacing` slows the source down to a replay.
`run` does it all; `watch` follows the job and kills a worker. `spark_sql` and `plain_python` work out the same answer
without Penstock, and `answers` compares. `live` and `report` are what the user sees.
"""
