"""Window operators for records: aligned windows, sessions, and the general operator with triggers and evictors.

`penstock.plan.transformation` chooses the fastest operator that a program allows. Each can restore the windows
of the others (`kept_windows`), so a change of trigger or evictor keeps a savepoint usable.
"""
