"""The addresses of the servers of one database, and which of them a client uses.

Any server answers any request. Each client begins with a server of its own, so that clients are spread, and stays with
it until it is away; then it moves on to the next.
"""

from collections.abc import Callable, Sequence
from random import Random
from threading import Lock
from typing import Final

from taskyard.sdk.errors import Unset

#: More servers than one database needs.
SERVERS_MAX: Final = 32
#: What proxies and servers answer that cannot answer now.
AWAY: Final = frozenset({502, 503, 504})


def split_urls(urls: str | Sequence[str]) -> list[str]:
    """Return the addresses in a text, where commas separate them, without repetitions."""
    written = urls.split(",") if isinstance(urls, str) else urls
    found = list(dict.fromkeys(url.strip().rstrip("/") for url in written if url.strip()))
    if not 1 <= len(found) <= SERVERS_MAX:
        raise Unset(f"{','.join(written)!r} has {len(found)} addresses of servers: 1 to {SERVERS_MAX} are needed")
    return found


def joined_urls(urls: str | Sequence[str]) -> str:
    """Return addresses as one text."""
    return urls.rstrip("/") if isinstance(urls, str) else ",".join(split_urls(urls))


class ServerList:
    """The servers in the order in which a client tries them. Any thread may use it."""

    def __init__(self, urls: str | Sequence[str], name: str | None = None) -> None:
        """Order the servers at random, or always in the same way for the same name."""
        self.urls = split_urls(urls)
        self._order = list(self.urls)
        Random(name).shuffle(self._order)  # noqa: S311 - spreads load, guards no secret
        self._place = 0
        self._tried = 0  # how many servers have failed since one answered, or since the last pause
        self._lock = Lock()
        self.on_leave: Callable[[str], None] = lambda _: None  # called with a server that is away

    def __len__(self) -> int:
        return len(self._order)

    @property
    def home(self) -> str:
        """The server that this client begins with."""
        return self._order[0]

    @property
    def current(self) -> str:
        """The server to ask."""
        return self._order[self._place]

    def move_on(self, url: str) -> bool:
        """Leave a server that is away; return whether to ask at once, because another one may answer."""
        with self._lock:
            if url != self.current:
                return True  # another request has moved on already
            self._tried += 1
            asks_at_once = self._tried < len(self._order)
            if not asks_at_once:
                self._tried = 0
            self._place = (self._place + 1) % len(self._order)
        if len(self._order) > 1:
            self.on_leave(url)
        return asks_at_once

    def answered(self) -> None:
        """Note that a server has answered."""
        self._tried = 0

    def go_home(self) -> None:
        """Use the first server again: it is back."""
        with self._lock:
            self._place = self._tried = 0
