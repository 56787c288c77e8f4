"""Penstock: Flink's model, in Python, on Spark."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("penstock")
except PackageNotFoundError:  # imported from a folder or an archive, as a Spark worker may
    __version__ = "0+unknown"

__all__ = ["__version__"]
