"""A session's view of its jobs, which run in separate processes.

Each program in a session is a process. It reports its jobs to the session and answers the session's requests
over a pair of connected sockets that only these two processes share (`channel`). The session decodes its
messages strictly by type and never unpickles them, so no program can run code in the session. In the session, a
job is a `RemoteJob` (`remote_job`), a handle like that of a local job, so the dispatcher, the REST API, metrics
and the web page need no knowledge of sessions. `ProgramSide` (`channel`) is the other end, in the program's
process. `programs` is the interface to the session that takes and runs programs.
"""
