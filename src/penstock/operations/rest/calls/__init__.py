"""What a handler is called with and gives back: routes, parameters, the jobs, errors, answers."""
