"""OVER windows: aggregates over a frame around each row."""
