"""The command line: parsing and printing only. What a verb does is in `echoless.verbs`."""
