"""The drivers, which run the core: the only layer with threads, sockets, processes and a wall clock."""
