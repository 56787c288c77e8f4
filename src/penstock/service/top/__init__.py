"""`penstock top`: an overview of a job, from the REST API."""
