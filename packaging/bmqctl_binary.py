"""Where the single binary begins."""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

from bmqctl_kept import PACKAGES

from bmqctl.app import main
from bmqctl.common.kept_packages import KeptPackages

if __name__ == "__main__":
    sys.meta_path.insert(0, KeptPackages(PACKAGES, Path(sys._MEIPASS) / "kept"))
    # The workers of `bmqctl bench` are this binary again, told apart by their arguments.
    multiprocessing.freeze_support()
    main()
