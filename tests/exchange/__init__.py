"""Files that Penstock and other programs exchange: every type in every format, both ways.

    python -m tests.exchange --flink-python PYTHON --flink-jars DIRECTORY --python PYTHON

prints the tables of docs/formats.md. `--flink-python` has PyFlink 2.3, and the directory has its jars for Parquet, ORC
and Avro, and Hadoop's classes. `--python` has polars and fastavro. Programs without an interpreter are left out.
"""
