"""`python -m art_otel` is the command line."""

import sys

from art_otel.cli import main

sys.exit(main())
