"""Sessions: long-lived processes that take programs from clients and run each in a process of its own.

`process` is the session, `programs` the programs that it runs, `uploads` the programs uploaded to it, `definitions` the
records that outlive it, and `program_process` the process of one program; `launch` and `submitting` are for the
commands.
"""
