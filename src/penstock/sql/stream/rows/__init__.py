"""Rows: how operators keep and find them, and the operators that process rows one by one.

State that expires (`state_ttl`) has a table of last-write times beside it. Expired state is dropped at the next
access to its key, or by the one timer of the key, in a bucket of an eighth of the lifetime. Append-only rows
are columns, known by numbers (`columns`). A snapshot of such a state holds the rows themselves, which are read
out in the background.
"""
