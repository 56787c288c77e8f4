"""The runtime without IO: events in, commands out, deterministic.

Nothing in this package names a clock, a socket, a thread, a file or a random number. What the runtime needs of
the world it is handed through the protocols of `penstock.core.ports`; the drivers implement them.
"""
