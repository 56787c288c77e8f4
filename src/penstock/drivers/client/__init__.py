"""The client: the way from a program to the driver that runs it, and the loops that run many jobs for one."""
