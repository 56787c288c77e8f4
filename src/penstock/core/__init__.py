"""The runtime without IO: events in, commands out, deterministic.

Nothing in this package uses a clock, a socket, a thread, a file or a random number. The runtime reaches the outside
world through the protocols of `penstock.core.ports`, which the drivers implement.
"""
