"""Request handlers: one module per area of the API, each with its part of the table of routes."""
