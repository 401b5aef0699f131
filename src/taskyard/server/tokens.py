"""Tokens of people, bots and newcomers: `ty_<kind>_<id>_<secret>`. Of the secret only a digest is ever stored."""

import hashlib
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final

import msgspec

from taskyard.core.values import replace
from taskyard.core.words import Millis
from taskyard.server.scopes import Rights, rights_of
from taskyard.store.verbs.access import TokenRow
from taskyard.wire.api import TokenView

USER: Final = "user"
BOT: Final = "bot"
ENROLMENT: Final = "enrolment"
KINDS: Final = (USER, BOT, ENROLMENT)
#: How a token spells its kind.
_SPELLED: Final = {USER: "user", BOT: "bot", ENROLMENT: "enrol"}
_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#: Digits of base 62 that hold 128 and 256 bits.
ID_DIGITS: Final = 22
SECRET_DIGITS: Final = 43
_TEXT: Final = re.compile(
    rf"ty_(user|bot|enrol)_([0-9A-Za-z]{{{ID_DIGITS}}})_([0-9A-Za-z]{{{SECRET_DIGITS}}})", re.ASCII
)
_SCOPES: Final = msgspec.json.Decoder(list[str])


@dataclass(frozen=True, slots=True)
class Spoken:
    """A token as somebody shows it."""

    kind: str
    id: str
    secret: str


@dataclass(frozen=True, slots=True)
class Wish:
    """What a new token should be."""

    kind: str
    name: str
    scopes: tuple[str, ...] = ()
    pool: str | None = None
    life_ms: int | None = None  # None: it is good for ever


def made(wish: Wish, now: Millis) -> tuple[str, TokenRow]:
    """Make a token: its text, which is told once, and what is stored of it."""
    return of_bytes(wish, now, secrets.token_bytes(16), secrets.token_bytes(32))


def of_bytes(wish: Wish, now: Millis, named: bytes, secret_bytes: bytes) -> tuple[str, TokenRow]:
    """Make a token whose id and secret are given bytes."""
    id, secret = _spelled(ID_DIGITS, named[:16]), _spelled(SECRET_DIGITS, secret_bytes)
    scopes = msgspec.json.encode(wish.scopes).decode()
    over = None if wish.life_ms is None else now + wish.life_ms
    row = TokenRow(id, wish.kind, wish.name, digest(secret), scopes, wish.pool, now, over, None)
    return f"ty_{_SPELLED[wish.kind]}_{id}_{secret}", row


def successor(old: TokenRow, fresh: TokenRow) -> TokenRow:
    """Give a fresh token all that another is for."""
    return replace(fresh, kind=old.kind, name=old.name, scopes=old.scopes, pool=old.pool, expires_ms=old.expires_ms)


def spelled(text: str, kind: str) -> str:
    """Write a token as one of another kind."""
    _, _, rest = text.removeprefix("ty_").partition("_")
    return f"ty_{_SPELLED[kind]}_{rest}"


def read(text: str) -> Spoken | None:
    """Take a token apart."""
    found = _TEXT.fullmatch(text)
    return None if found is None else Spoken(found[1], found[2], found[3])


def digest(secret: str) -> str:
    """Give what is stored of a secret. It has 256 bits of chance, so nobody can guess it from its digest."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_right(spoken: Spoken, row: TokenRow) -> bool:
    """Tell whether somebody knows the secret of a token."""
    same = compare_digest(digest(spoken.secret), row.digest)
    return same and _SPELLED[row.kind] == spoken.kind


def is_good(row: TokenRow, now: Millis) -> bool:
    """Tell whether a token is neither revoked nor over."""
    return row.revoked_ms is None and (row.expires_ms is None or now < row.expires_ms)


def scopes(row: TokenRow) -> list[str]:
    """Read what a token may do."""
    return _SCOPES.decode(row.scopes)


def rights(row: TokenRow) -> Rights:
    """Say what a token may do."""
    return rights_of(scopes(row))


def view(row: TokenRow) -> TokenView:
    """Show a token, without its secret."""
    return TokenView(row.id, row.kind, row.name, scopes(row), row.pool, row.created_ms, row.expires_ms, row.revoked_ms)


def columns(rows: Collection[TokenRow]) -> list[tuple[object, ...]]:
    """Give tokens as the store takes them."""
    return [
        (one.id, one.kind, one.name, one.digest, one.scopes, one.pool, one.created_ms, one.expires_ms) for one in rows
    ]


def _spelled(digits: int, body: bytes) -> str:
    number = int.from_bytes(body, "big")
    text = ""
    for _ in range(digits):
        number, rest = divmod(number, len(_ALPHABET))
        text += _ALPHABET[rest]
    return text
