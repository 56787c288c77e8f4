"""Programs that `penstock run` starts: from the options to a process, and that process's reports on its jobs.

A program runs as with `python job.py`: it is `__main__`, in its own process, with its own arguments. The options reach
it as the environment's defaults (`penstock.drivers.global_configuration`), so the program itself is unchanged.
"""
