"""A complete cluster in one process, with one thread for the job master and all tasks."""
