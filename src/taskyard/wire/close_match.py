"""Messages about unknown names, with a suggestion; for clients, which do not import the core."""

from collections.abc import Iterable

from taskyard.core.close_match import closest

__all__ = ["closest", "unknown_name"]


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """Return a message about an unknown name, with the closest known one, or the known ones if they are few."""
    names = list(known)
    found = closest(name, names)
    more = f'Did you mean "{found}"?' if found else _list(names)
    return f'unknown {what} "{name}". {more}'.rstrip()


def _list(names: list[str]) -> str:
    return f"There are: {', '.join(names)}." if 0 < len(names) <= 12 else ""
