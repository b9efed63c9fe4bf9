"""`python -m headwater`: the command line, for processes that must not depend on PATH."""

from __future__ import annotations

import sys

from headwater.cli.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
