"""The inputs and outputs of handlers: routes, parameters, jobs, errors and answers."""
