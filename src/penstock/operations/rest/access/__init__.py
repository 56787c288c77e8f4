"""Access control: the server's settings with its tokens, and the browsers that are logged in."""
