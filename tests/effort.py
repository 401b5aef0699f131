"""How many random examples tests try: few in `make test`, which takes minutes, and ten times as many in `make soak`."""

import os
from typing import Final

SOAK: Final = bool(os.environ.get("TASKYARD_SOAK"))


def tries(usual: int) -> int:
    """How many examples to try of what is tried so often by default."""
    return 10 * usual if SOAK else usual
