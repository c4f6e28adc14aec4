"""Functions that return a config, and the verbs that run them."""
