"""Where the single binary begins."""

from __future__ import annotations

import multiprocessing

from bmqctl.app import main

if __name__ == "__main__":
    # The workers of `bmqctl bench` are this binary again, told apart by their arguments.
    multiprocessing.freeze_support()
    main()
