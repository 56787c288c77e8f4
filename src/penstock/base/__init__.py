"""The foundation of every layer: time, rows and types, options, errors. Imports only the standard library."""
