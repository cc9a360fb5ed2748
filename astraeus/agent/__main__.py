"""`python -m astraeus.agent`."""

import sys

from astraeus.agent.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
