"""`kafka`: tables whose rows are in topics."""
