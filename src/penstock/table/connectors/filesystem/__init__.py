"""`filesystem`: tables in files, whose rows are of some format, in directories by partition."""
