"""The GPUs of a machine: which there are, and which of them each attempt gets."""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Final

#: The variable in which programs find the GPUs that they may use.
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_DRIVER: Final = Path("/proc/driver/nvidia/gpus")


def models() -> list[str]:
    """Detect the model of each GPU."""
    found = []
    for card in sorted(_DRIVER.glob("*/information")):
        with suppress(OSError):
            found.append(card.read_text(encoding="utf-8", errors="replace"))
    return [model[1].strip() for text in found if (model := re.search(r"^Model:\s*(.+)$", text, re.MULTILINE))]


def names(environment: Mapping[str, str] | None = None) -> list[str] | None:
    """Return the names of the GPUs that this bot may use; None if it may use all, by their numbers."""
    listed = (os.environ if environment is None else environment).get(VISIBLE)
    if listed is None:
        return None
    found = [one.strip() for one in listed.split(",") if one.strip()]
    # For CUDA, the list ends before the first entry that is no GPU.
    return found[: found.index("-1")] if "-1" in found else found


class GpuPool:
    """The GPUs that no attempt has. The server gives a bot no more attempts than it has GPUs for."""

    def __init__(self, known: Iterable[str] | None = None) -> None:
        self._known = None if known is None else list(known)
        self._taken: set[str] = set()

    def take(self, wanted: int) -> tuple[str, ...] | None:
        """Take GPUs, the first that are free; None if there are too few."""
        every = map(str, count()) if self._known is None else self._known
        found = tuple(islice((one for one in every if one not in self._taken), wanted))
        if len(found) < wanted:
            return None
        self._taken.update(found)
        return found

    def ever_has(self, wanted: int) -> bool:
        """Whether the bot has so many GPUs in all."""
        return self._known is None or wanted <= len(self._known)

    def give_back(self, taken: Iterable[str]) -> None:
        """Take GPUs back from an attempt."""
        self._taken.difference_update(taken)
