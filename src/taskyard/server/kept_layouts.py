"""The layouts of graphs that were computed last."""

import asyncio
from collections import OrderedDict
from threading import Lock
from typing import Final

#: How many bytes of layouts a server keeps: some hundred of 1 000 tasks each.
KEPT_BYTES_MAX: Final = 32 * 2**20
#: How many layouts are computed at a time: each holds a core for up to a second.
AT_ONCE_MAX: Final = 2


class KeptLayouts:
    """The layouts that were computed last, as JSON; a graph that was extended has another size, so a new one."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[int, int, str], bytes] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()
        self.turns = asyncio.Semaphore(AT_ONCE_MAX)

    def get(self, graph: int, size: int, view: str) -> bytes | None:
        """Return a layout if it is kept."""
        with self._lock:
            found = self._found.get((graph, size, view))
            if found is not None:
                self._found.move_to_end((graph, size, view))
            return found

    def keep(self, graph: int, size: int, view: str, body: bytes) -> None:
        """Keep a layout, and forget those that have not been asked for the longest."""
        with self._lock:
            self._bytes += len(body) - len(self._found.pop((graph, size, view), b""))
            self._found[graph, size, view] = body
            while self._bytes > KEPT_BYTES_MAX:
                self._bytes -= len(self._found.popitem(last=False)[1])
