"""`python -m echoless`, and what torchrun starts."""

import sys

from echoless.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
