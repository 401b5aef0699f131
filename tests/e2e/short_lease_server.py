"""The server with short leases and sweeps, so that a silent bot is noticed in seconds.

`--lease` sets the length of leases. The guard time and the period of sweeps are not settings, so they are set here,
before anything else is imported.
"""

from types import ModuleType
from typing import Final

from taskyard.core import fleet

SPANS: Final[tuple[tuple[ModuleType, str, int], ...]] = (
    (fleet, "GUARD_MS", 500),
    (fleet, "SWEEP_MS", 500),
)

if __name__ == "__main__":
    for module, name, span in SPANS:
        assert isinstance(getattr(module, name), int)
        setattr(module, name, span)
    from taskyard.main import main

    main()
