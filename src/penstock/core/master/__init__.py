"""Masters of jobs that run step by step: epochs, back-fills and batches."""
