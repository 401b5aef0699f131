"""The server in a hurry: the same program with short spans, so that silence is noticed in seconds.

Spans are read where they are used, so they are set before anything else is imported. A poll waits for less than a
third of a lease, as always: the lease of what it brings counts from when it was sent.
"""

from types import ModuleType
from typing import Final

from taskyard.core import fleet
from taskyard.wire import bots

SPANS: Final[tuple[tuple[ModuleType, str, int], ...]] = (
    (fleet, "LEASE_MS", 3_000),
    (fleet, "GUARD_MS", 500),
    (fleet, "SWEEP_MS", 500),
    (fleet, "DEAD_AFTER_MS", 4_000),
    (bots, "WAIT_MAX_MS", 900),
)

if __name__ == "__main__":
    for module, name, span in SPANS:
        assert isinstance(getattr(module, name), int)
        setattr(module, name, span)
    from taskyard.main import main

    main()
