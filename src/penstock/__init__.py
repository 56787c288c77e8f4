"""Penstock: Flink's programming model in Python, on Spark."""

from importlib.metadata import PackageNotFoundError, version

from penstock.moved_modules import install

install()
try:
    __version__ = version("penstock")
except PackageNotFoundError:  # imported from a directory or an archive, as on a Spark worker
    __version__ = "0+unknown"

__all__ = ["__version__"]
