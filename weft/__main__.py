"""`python -m weft`: the same command as `weft`."""

import sys

from weft.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
