"""Functions that return a config, by name; `table.py` lists them all."""
