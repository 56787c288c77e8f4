"""What runs the core: the only place with threads, sockets, processes and a wall clock."""
