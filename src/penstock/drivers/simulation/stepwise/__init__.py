"""Jobs of epochs and back-fills in simulation: their masters work step by step, and every step may fail."""
