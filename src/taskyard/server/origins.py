"""Where a request comes from. Without tokens, whoever can connect may ask: also a page of a stranger, in somebody's
browser on this machine. Such a page gives itself away by what browsers say of it, and is refused.

Where tokens are asked for, none of this is needed: a browser has none to show.
"""

from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope

from taskyard.server.settings import is_loopback

#: What browsers say of a request that no page of a stranger has made.
_OUR_SITES: Final = frozenset({"", "same-origin", "none"})


def stranger(scope: Scope) -> str | None:
    """Say why a request may be that of a stranger's page; None when it is not."""
    said = {name: value.decode("latin-1") for name, value in scope["headers"] if name in _TELLING}
    host, origin = said.get(b"host", ""), said.get(b"origin")
    # A name that leads to this machine may be anybody's: only what is surely this machine counts.
    if host and not is_loopback(_name(host)):
        return "it asks for a host that is not surely this machine: use 127.0.0.1 or localhost"
    if origin is not None and origin.partition("://")[2] != host:
        return "it was made by a page of another origin"
    if said.get(b"sec-fetch-site", "") not in _OUR_SITES:
        return "it was made by a page of another site"
    return None


_TELLING: Final = frozenset({b"host", b"origin", b"sec-fetch-site"})


def _name(host: str) -> str:
    """Give the name of a host without its port; nothing for what is no host."""
    try:
        return urlsplit(f"//{host}").hostname or "?"
    except ValueError:
        return "?"
