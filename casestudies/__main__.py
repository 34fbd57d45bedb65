"""``python -m casestudies``: see ``casestudies.cli``."""

import sys

from casestudies.cli import main

if __name__ == "__main__":
    sys.exit(main())
