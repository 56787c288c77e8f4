"""User-defined functions: their definitions, their life cycle in subtasks, and their evaluation on columns."""
