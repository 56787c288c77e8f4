#!/usr/bin/env bash
# Spark 4.0.0 groups by maps, but COUNT(DISTINCT map) does not bring their entries into order: two equal maps whose
# entries were written in another order count twice, while GROUP BY makes one row of them. Seen:
#
#   rows of GROUP BY m: 1, COUNT(DISTINCT m): 2
#
# The script fails when the two agree.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.0.0
cat >"$folder/job.py" <<'PYTHON'
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
rows = spark.sparkContext.parallelize([("a", 1, "b", 2), ("b", 2, "a", 1)])
spark.createDataFrame(rows, "k STRING, x INT, l STRING, y INT").createOrReplaceTempView("entries")
spark.sql("SELECT map(k, x, l, y) AS m FROM entries").createOrReplaceTempView("t")


def number(query):
    return spark.sql(query).collect()[0][0]


groups = number("SELECT COUNT(*) FROM (SELECT m, COUNT(*) FROM t GROUP BY m)")
counted = number("SELECT COUNT(DISTINCT m) FROM t")
print("Spark", spark.version)
print(f"rows of GROUP BY m: {groups}, COUNT(DISTINCT m): {counted}")
sys.exit((groups, counted) != (1, 2))
PYTHON
cd "$folder"
PYSPARK_PYTHON="$folder/venv/bin/python" SPARK_LOCAL_IP=127.0.0.1 venv/bin/python job.py 2>/dev/null
