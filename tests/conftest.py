from __future__ import annotations

from hypothesis import settings

# The same examples in every run; and no deadline, as the first example may unpack a capture on a busy machine.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")
