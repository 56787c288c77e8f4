"""The source operator: reads splits, makes watermarks."""
