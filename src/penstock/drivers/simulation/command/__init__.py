"""`penstock-sim`: the command line of both simulations, of running tasks and of stepwise masters."""
