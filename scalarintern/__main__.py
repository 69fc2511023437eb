"""``python -m scalarintern`` is the ``scalarintern`` command."""

from __future__ import annotations

import sys

from scalarintern.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
