"""What views of jobs say, as Flink's metrics: names, scopes, types and values.

All of it is made of two values: a view, and an earlier one for what is per second. Nothing here asks a job for
anything but views, and those the dispatcher hands out at most twice a second.
"""
