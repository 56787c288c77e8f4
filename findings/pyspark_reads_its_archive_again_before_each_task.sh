#!/usr/bin/env bash
# PySpark 4.0.1 starts its Python workers with pyspark.zip ahead of the installed package on PYTHONPATH, and calls
# importlib.invalidate_caches() before each task. Python 3.11 and 3.12 then read the table of contents of the archive
# once for each package that was imported from it. Seen with 3.11, in one worker that is used again:
#
#   the second task read the contents of pyspark.zip 12 times, 14,640 entries in all
#
# Python 3.13 reads them when they are next needed. The script fails when a second task reads them fewer than 5 times.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.0.1 pandas==2.3.3 pyarrow==21.0.0
cat >"$folder/job.py" <<'PYTHON'
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")


def count(numbers):
    import os
    import zipimport

    if not hasattr(zipimport, "reads"):
        zipimport.reads = []
        read = zipimport._read_directory

        def counted(archive):
            contents = read(archive)
            if archive.endswith("pyspark.zip"):
                zipimport.reads.append(len(contents))
            return contents

        zipimport._read_directory = counted
    reads, zipimport.reads = zipimport.reads, []
    yield os.getpid(), len(reads), sum(reads)


tasks = spark.sparkContext.parallelize(range(8), 8).mapPartitions(count).collect()
workers = [worker for worker, _, _ in tasks]
second = [place for place, worker in enumerate(workers) if worker in workers[:place]]
assert second, "Spark has begun a worker for each task"
_, reads, entries = tasks[second[0]]
print("Python", sys.version.split()[0])
print(f"the second task read the contents of pyspark.zip {reads} times, {entries:,} entries in all")
sys.exit(reads < 5)
PYTHON
cd "$folder"
PYSPARK_PYTHON="$folder/venv/bin/python" SPARK_LOCAL_IP=127.0.0.1 venv/bin/python job.py 2>/dev/null
