"""Who may ask: the settings of the server with its tokens, and the browsers that have logged in."""
