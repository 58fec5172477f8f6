"""`python -m m2ac`: the command, where it is not on the path."""

import sys

from m2ac.cli import main

sys.exit(main())
