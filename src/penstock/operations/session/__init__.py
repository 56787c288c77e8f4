"""A session's jobs, which run in processes of their own, as the session's server sees them.

Each program that a session runs is a process. It tells the session of its jobs, and answers what the session asks of
them, over one pair of connected sockets that only these two processes have (`channel`). What it says is decoded
strictly by type (`messages`); nothing of it is unpickled, so that no program can run code in the session. In the
session a job is a `RemoteJob`, a handle like those of jobs of one's own process, and so the dispatcher, the REST API,
metrics and the page need know nothing of sessions. In the program's process `ProgramSide` is the other end.
"""
