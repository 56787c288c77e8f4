"""The state shared by the statements of an environment: options, executor, and result formatting."""
