"""Sessions: a process that lives long, takes programs from others, and runs each in a process of its own.

`process` is the session, `programs` what it runs, `uploads` what it was given, `definitions` what outlives it,
and `program_process` the process of one program; `launch` and `submitting` are for the commands.
"""
