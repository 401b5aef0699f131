"""The server in a hurry: the same program with short spans, so that silence is noticed in seconds.

Leases are as short as `--lease` says. What a server adds to them, for clocks that drift and between two looks, is no
setting, so it is set here, before anything else is imported.
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
