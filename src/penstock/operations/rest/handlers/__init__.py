"""What answers the routes, one area a file; each has its part of the table of routes."""
