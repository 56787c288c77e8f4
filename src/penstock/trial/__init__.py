"""Servers to try Penstock with, on this machine: `penstock try kafka` and `penstock try postgres`.

They are the real ones, small, on loopback, and forget everything when they end. The tests use them too.
"""
