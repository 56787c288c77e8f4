"""Sessions: long-lived processes that take programs from clients and run each in a process of its own.

A program needs its own process because Python has one `sys.modules`, one working directory and one environment
per process, and because a crash ends a process. The session holds the JVM and its SparkContext; a program's
process attaches to them by PySpark's gateway (`penstock.drivers.spark.session`). Jobs and their masters live in
the program's process. A process that loses its session ends at once; a session that loses a process shows its
jobs as failed. With high availability the definitions of programs outlive the session, and their state is in
the checkpoints.

`process` is the session, `programs` the programs that it runs, `uploads` the programs uploaded to it and the
records that outlive it, and `program_process` the process of one program. `client` is for the commands: it
starts and stops sessions, and submits programs.
"""
