"""The server in a hurry: the same program with short leases, so that the silence of a lost bot is noticed in seconds.

Spans are read where they are used and told to bots in the welcome, so they are set before anything else is imported.
"""

from typing import Final

from taskyard.core import fleet

SPANS: Final = {"LEASE_MS": 3_000, "GUARD_MS": 500, "SWEEP_MS": 500, "DEAD_AFTER_MS": 4_000}

if __name__ == "__main__":
    for name, span in SPANS.items():
        assert isinstance(getattr(fleet, name), int)
        setattr(fleet, name, span)
    from taskyard.main import main

    main()
