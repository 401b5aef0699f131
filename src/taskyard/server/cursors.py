"""Cursors: where a page ended, as text that nobody has to understand. A bad one is a fault like any other."""

import base64
import binascii
from typing import Final, TypeVar

import msgspec

from taskyard.server.problems import Refused, wrong

T = TypeVar("T")
#: Longer than any that we write.
CURSOR_MAX: Final = 1_024
_KEY: Final = msgspec.json.Decoder(tuple[int])
_NAME: Final = msgspec.json.Decoder(tuple[str])
_MOMENT: Final = msgspec.json.Decoder(tuple[int, str])


def written(*place: int | str | None) -> str | None:
    """Write a place down; nothing, where there is none."""
    if place[0] is None:
        return None
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def key(text: str | None, first: int) -> int:
    """Read a cursor that is a key."""
    return first if text is None else _within(_read(_KEY, text)[0])


def name(text: str | None, first: str) -> str:
    """Read a cursor that is a name."""
    return first if text is None else _clean(_read(_NAME, text)[0])


def moment(text: str | None, first: tuple[int, str]) -> tuple[int, str]:
    """Read a cursor that is a moment and a name."""
    if text is None:
        return first
    at, id = _read(_MOMENT, text)
    return _within(at), _clean(id)


def _read(decoder: msgspec.json.Decoder[T], text: str) -> T:
    try:
        return decoder.decode(base64.b64decode(text.encode() + b"===", b"-_"))
    except (binascii.Error, UnicodeError, msgspec.MsgspecError):
        raise _bad() from None


def _within(number: int) -> int:
    if not -1 <= number < 2**63:
        raise _bad()
    return number


def _clean(text: str) -> str:
    if "\0" in text or not text.isprintable():
        raise _bad()
    return text


def _bad() -> Refused:
    return wrong("is no cursor; take it from `next` of the page before", "cursor")
