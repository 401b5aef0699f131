"""Masks secrets in what an attempt leaves: its output, its result and its progress.

It finds a secret as it is, each longer line of it, and the forms that programs print by accident: base64 (also inside
other base64, and wrapped), URL-encoded, as JSON, hexadecimal. A secret that is split over pieces of output is found,
too. It is a help against accidents and no boundary: a task can always encode a secret in another way.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

MASK: Final = b"***"
#: Shorter text occurs by chance.
MASKED_MIN: Final = 8
#: Of a longer secret, the forms that are several times as long are not looked for.
_WIDE_MAX: Final = 4_096
#: At how many characters programs wrap base64: `base64`, and `openssl base64` and PEM.
_WRAPPED_AT: Final = (76, 64)
#: How long the text is by which a place is found where a form may begin.
_ANCHOR: Final = 8
#: How many first characters of base64 depend on what is before, for each position in a group of three bytes.
_LEADING: Final = (0, 2, 3)


class Masker:
    """Masks the secrets of one attempt."""

    def __init__(self, values: Iterable[bytes]) -> None:
        long_enough = (value for value in map(bytes.strip, values) if len(value) >= MASKED_MIN)
        forms = {form for value in long_enough for form in _forms(value) if len(form) >= MASKED_MIN}
        self._forms = sorted(forms, key=len, reverse=True)  # a longer one may have a shorter one inside
        self._held = b""

    def __bool__(self) -> bool:
        return bool(self._forms)

    def add(self, body: bytes) -> bytes:
        """Mask a piece of output. What may be the beginning of a secret is held back until the rest has come."""
        found = self.mask(self._held + body)
        held = max((_beginning(found, form) for form in self._forms), default=0)
        self._held = found[len(found) - held :]
        return found[: len(found) - held]

    def finish(self) -> bytes:
        """Return what was held back: no more output comes."""
        held, self._held = self._held, b""
        return held

    def mask(self, body: bytes) -> bytes:
        """Mask a whole text."""
        for form in self._forms:
            if form in body:
                body = body.replace(form, MASK)
        return body

    def is_in(self, body: bytes) -> bool:
        """Tell whether a secret is in some bytes."""
        return any(form in body for form in self._forms)


def _beginning(body: bytes, form: bytes) -> int:
    """Return how many last bytes of a text are the beginning of a form, and not all of it."""
    start = max(0, len(body) - len(form) + 1)
    at = body.find(form[:_ANCHOR], start)
    while at != -1:
        if form.startswith(body[at:]):
            return len(body) - at
        at = body.find(form[:_ANCHOR], at + 1)
    for size in range(min(_ANCHOR - 1, len(body), len(form) - 1), 0, -1):
        if form.startswith(body[-size:]):
            return size
    return 0


def _forms(value: bytes) -> Iterator[bytes]:
    """Yield the forms in which a secret without outer blanks may be printed."""
    yield value
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        yield from lines
        yield b"\r\n".join(value.splitlines())
    yield from _base64(value)
    yield from _as_text(value)
    if len(value) <= _WIDE_MAX:
        yield value.hex().encode()
        yield value.hex().upper().encode()
        for spelled in ("%{:02X}", "%{:02x}"):
            yield "".join(spelled.format(byte) for byte in value).encode()
    for safe in ("", "/"):
        yield from _both_cases(quote(value, safe=safe), value)
    yield from _both_cases(quote_plus(value), value)


def _both_cases(quoted: str, value: bytes) -> Iterator[bytes]:
    """Yield a URL-encoded text with upper and with lower hexadecimal digits."""
    yield quoted.encode()
    if len(value) <= _WIDE_MAX:
        parts = quoted.split("%")
        yield "%".join([parts[0], *(part[:2].lower() + part[2:] for part in parts[1:])]).encode()


def _base64(value: bytes) -> Iterator[bytes]:
    """Yield the part of base64 that is the same whatever is around a value, for each position that it may have."""
    for before, leading in enumerate(_LEADING):
        whole = before + len(value)
        encoded = base64.b64encode(bytes(before) + value)[leading : whole * 8 // 6]
        yield encoded
        yield encoded.translate(bytes.maketrans(b"+/", b"-_"))
        if before == 0:
            for width in _WRAPPED_AT:
                yield b"\n".join(encoded[at : at + width] for at in range(0, len(encoded), width))


def _as_text(value: bytes) -> Iterator[bytes]:
    """Yield a text as it stands in JSON, in Python and in a shell script."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return
    for ascii_only in (True, False):
        yield json.dumps(text, ensure_ascii=ascii_only)[1:-1].encode()
    yield repr(text)[1:-1].encode()
    yield text.replace("'", "'\\''").encode()
    yield text.replace("'", "'\"'\"'").encode()
