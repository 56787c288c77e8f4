"""`penstock package-env`: packs this Python and its packages into one archive, which Spark unpacks for executors.

The archive includes an interpreter, so executors need no Python. It is not a virtual environment, whose Python is a
link to one elsewhere on the same machine. A Python started as `environment/bin/python` finds its library relative to
itself, wherever that is. Tools for virtual environments (venv-pack) leave the interpreter out, and reject an
environment that contains a package installed from source, such as Penstock itself.

PySpark is left out: each cluster manager of Spark puts the PySpark of its own release on the executors' path, and the
jars of PySpark make up most of an environment's size.
"""
