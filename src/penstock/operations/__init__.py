"""Those who look at running jobs and steer them: the layer above the drivers and below the API."""
