"""Programs that `penstock run` starts: from its options to a process, and what that process says of its jobs.

A program runs as `python job.py` would: it is `__main__`, in a process of its own, with its own arguments. Its options
come to it as the environment's defaults (`penstock.drivers.settings.defaults`), so the program itself is unchanged.
"""
