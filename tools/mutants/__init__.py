"""Would a test notice if the code were wrong? Changes the source in small ways and runs the tests of each change.

    make mutants                                     the map if there is none, then named and drawn mutants
    python -m mutants --help                         with PYTHONPATH=tools

A change that no test notices (a survivor) is a promise that nothing guards. The runner is our own because the known
ones (cosmic-ray, mutmut) start one pytest for each mutant: here the import of torch alone takes seconds and the suite
nine minutes. This one imports torch once, forks for each mutant, and runs the tests that execute the changed line,
the fastest first, up to a limit.

    observe.py      which test executes which line: a plugin of pytest
    lines.py        the map that it leaves, and the tests for one changed line
    mutant.py       one change of one file
    rules.py        changes made by rule
    named.py        changes written by hand, each with the promise that it breaks
    equivalent.py   changes that change nothing, each with the reason
    draw.py         a sample in which every package has its share
    work.py         the copy of the tree, the fork, the outcome
    table.py        the figures
"""
