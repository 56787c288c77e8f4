"""An oracle for patterns: every selection of events is tried against the definition. It knows nothing of the engine."""
