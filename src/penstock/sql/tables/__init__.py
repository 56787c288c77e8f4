"""Tables of connectors: how they are read, written and looked up, and their options.

A connector (`connector`) takes a table's options and returns a source or a sink of columns. Its further
abilities are methods of a scan that the planner uses (`tables`): reading some columns, fields, partitions or
rows, and generating watermarks. `lookup` is for tables that are queried by key.
"""
