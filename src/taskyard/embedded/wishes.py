"""How often somebody wanted a run to end. Any thread may say so; whoever waits for news is woken."""

import math
import threading
import time
from typing import Final

#: Two signals closer than this are one wish: `timeout` sends its signal twice, and nobody presses Ctrl-C that fast.
ONE_WISH_SECONDS: Final = 0.3


class Wishes:
    """Counts wishes to end."""

    def __init__(self) -> None:
        self.count = 0
        self.news = threading.Event()
        self._last = -math.inf

    def add(self) -> None:
        """Take note of one."""
        now = time.monotonic()
        if now - self._last >= ONE_WISH_SECONDS:
            self._last = now
            self.count += 1
            self.news.set()

    def any(self) -> bool:
        """Whether there was one."""
        return self.count > 0
