"""Plans as streams: which changes each step sends, and the operators that work on columns."""
