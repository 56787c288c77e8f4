"""`penstock package-env`: this Python with its packages as one archive, which Spark unpacks where executors run.

The archive holds an interpreter of its own, so executors need no Python. It is no virtual environment, whose Python is
a link to one elsewhere on the same machine. A Python that is started as `environment/bin/python` looks for its library
beside itself, wherever that is. Tools for virtual environments (venv-pack) leave the interpreter out, and refuse an
environment into which anything, such as Penstock itself, is installed from its source.

PySpark is left out: each manager of Spark puts the PySpark of its own release on the executors' path, and its jars are
most of what an environment weighs.
"""
