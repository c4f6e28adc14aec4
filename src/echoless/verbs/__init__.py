"""What `echoless VERB` and `echoless.VERB(...)` do: one file per verb."""
