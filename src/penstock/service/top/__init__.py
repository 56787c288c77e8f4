"""`penstock top`: a job at a glance, taken from the REST API."""
