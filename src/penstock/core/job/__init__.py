"""The job master: execution graph, scheduling, failover."""
