"""Drives jobs whose master works step by step: a thread of the client's process carries out the steps."""
