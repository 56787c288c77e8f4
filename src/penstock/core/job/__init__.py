"""The job master: slots, scheduling, failover."""
