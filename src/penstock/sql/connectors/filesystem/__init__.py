"""`filesystem`: tables stored in files of any format, in directories by partition."""
