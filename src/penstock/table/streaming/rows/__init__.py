"""Rows: how operators keep and find them, and the operators that process rows one by one."""
