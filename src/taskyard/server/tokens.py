"""Tokens and their scopes.

Tokens of users, bots and enrolment are `ty_<kind>_<id>_<secret>`; only a digest of the secret is stored. Tokens of
running tasks are signed and not stored: `ty_run_<task>_<attempt>_<fence>_<mac>`. One is valid as long as its attempt
is leased with its fence.
"""

import hashlib
import re
import secrets
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Final, NamedTuple

import msgspec

from taskyard.core.graph.model import DIMENSION_VALUE_MAX
from taskyard.core.graph.scalars import name_fault
from taskyard.core.states import Millis
from taskyard.core.structs import struct_replace
from taskyard.store.repo.tokens import TokenRow
from taskyard.wire.api import TokenView

# Scopes: `admin` is everything; `pool:NAME:RIGHT` is one right in one pool, or in all pools (`*`). The right `admin`
# of a pool includes every right in it. No other right includes another.


ADMIN: Final = "admin"
READ: Final = "read"
SUBMIT: Final = "submit"
#: To submit tasks with a priority that few need; a still lower one needs the right `admin`.
URGENT: Final = "urgent"
CANCEL: Final = "cancel"
APPROVE: Final = "approve"
SECRETS: Final = "secrets"  # to name secrets of the pool in tasks
CATALOGUE: Final = "catalogue"  # to change the documents of the pool
BOT: Final = "bot"
RIGHTS: Final = (READ, SUBMIT, URGENT, CANCEL, APPROVE, SECRETS, CATALOGUE, ADMIN, BOT)
#: Stands for every pool.
ANY_POOL: Final = "*"
_POOL: Final = "pool:"


@dataclass(frozen=True, slots=True)
class Rights:
    """What a token may do."""

    admin: bool = False
    pools: Mapping[str, frozenset[str]] = field(default_factory=dict)  # the pools of each right

    def pools_with(self, right: str) -> frozenset[str] | None:
        """Return the pools in which a right is held; None stands for all."""
        if self.admin:
            return None
        found = self.pools.get(right, frozenset()) | self.pools.get(ADMIN, frozenset())
        return None if ANY_POOL in found else found

    def has_anywhere(self, right: str) -> bool:
        """Whether a right is held in any pool."""
        pools = self.pools_with(right)
        return pools is None or bool(pools)

    def has_in_any(self, right: str, pools: Collection[str]) -> bool:
        """Whether a right is held in one of some pools."""
        mine = self.pools_with(right)
        return mine is None or not mine.isdisjoint(pools)

    def missing_scopes(self, right: str, pools: Iterable[str]) -> list[str]:
        """Return the scopes that are missing for a right in all of some pools."""
        mine = self.pools_with(right)
        return [] if mine is None else [scope(pool, right) for pool in sorted(set(pools) - mine)]


ALL_RIGHTS: Final = Rights(admin=True)
NO_RIGHTS: Final = Rights()


def scope(pool: str, right: str) -> str:
    """Write a scope."""
    return f"{_POOL}{pool}:{right}"


def rights_of(scopes: Iterable[str]) -> Rights:
    """Read scopes; an invalid one gives no right."""
    pools: dict[str, set[str]] = defaultdict(set)
    admin = False
    for one in scopes:
        if one == ADMIN:
            admin = True
        elif scope_fault(one) is None:
            pool, _, right = one.removeprefix(_POOL).rpartition(":")
            pools[right].add(pool)
    return Rights(admin, {right: frozenset(found) for right, found in pools.items()})


def scope_fault(text: str) -> str | None:
    """Return what is wrong with a scope; None if it is valid."""
    if text == ADMIN:
        return None
    pool, _, right = text.removeprefix(_POOL).rpartition(":")
    if not text.startswith(_POOL) or right not in RIGHTS:
        return f"is not a scope; write admin, or pool:NAME:RIGHT with one of {', '.join(RIGHTS)}"
    found = None if pool == ANY_POOL else name_fault(pool, DIMENSION_VALUE_MAX)
    return None if found is None else f"the pool {found}"


USER: Final = "user"
ENROLMENT: Final = "enrolment"
KINDS: Final = (USER, BOT, ENROLMENT)
#: How a token's text spells its kind.
_SPELLED: Final = {USER: "user", BOT: "bot", ENROLMENT: "enrol"}
_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#: How many base-62 digits hold 128 and 256 bits.
ID_DIGITS: Final = 22
SECRET_DIGITS: Final = 43
_TEXT: Final = re.compile(
    rf"ty_(user|bot|enrol)_([0-9A-Za-z]{{{ID_DIGITS}}})_([0-9A-Za-z]{{{SECRET_DIGITS}}})", re.ASCII
)
_SCOPES: Final = msgspec.json.Decoder(list[str])


@dataclass(frozen=True, slots=True)
class TokenParts:
    """The parts of a token's text."""

    kind: str
    id: str
    secret: str


@dataclass(frozen=True, slots=True)
class TokenSpec:
    """What a new token should be."""

    kind: str
    name: str
    scopes: tuple[str, ...] = ()
    pool: str | None = None
    life_ms: int | None = None  # None: it never expires


def new_token(spec: TokenSpec, now: Millis) -> tuple[str, TokenRow]:
    """Make a random token: its text, which is shown once, and the row to store."""
    return token_from_bytes(spec, now, secrets.token_bytes(16), secrets.token_bytes(32))


def token_from_bytes(spec: TokenSpec, now: Millis, id_bytes: bytes, secret_bytes: bytes) -> tuple[str, TokenRow]:
    """Make a token with given bytes for its id and secret."""
    id, secret = _spelled(ID_DIGITS, id_bytes[:16]), _spelled(SECRET_DIGITS, secret_bytes)
    scopes = msgspec.json.encode(spec.scopes).decode()
    expires_ms = None if spec.life_ms is None else now + spec.life_ms
    row = TokenRow(id, spec.kind, spec.name, digest(secret), scopes, spec.pool, now, expires_ms, None)
    return f"ty_{_SPELLED[spec.kind]}_{id}_{secret}", row


def successor(old: TokenRow, fresh: TokenRow) -> TokenRow:
    """Give a new token the kind, name, scopes, pool and expiry of an old one."""
    return struct_replace(
        fresh, kind=old.kind, name=old.name, scopes=old.scopes, pool=old.pool, expires_ms=old.expires_ms
    )


def with_kind(text: str, kind: str) -> str:
    """Rewrite a token's text for another kind."""
    _, _, rest = text.removeprefix("ty_").partition("_")
    return f"ty_{_SPELLED[kind]}_{rest}"


def parse(text: str) -> TokenParts | None:
    """Split a token's text; None if it is not a token."""
    found = _TEXT.fullmatch(text)
    return None if found is None else TokenParts(found[1], found[2], found[3])


def digest(secret: str) -> str:
    """Return the digest of a secret. Secrets have 256 random bits, so they cannot be guessed from it."""
    return hashlib.sha256(secret.encode()).hexdigest()


def has_secret(parts: TokenParts, row: TokenRow) -> bool:
    """Whether a token's text has the right secret and kind."""
    same = compare_digest(digest(parts.secret), row.digest)
    return same and _SPELLED[row.kind] == parts.kind


def is_valid(row: TokenRow, now: Millis) -> bool:
    """Whether a token is neither revoked nor expired."""
    return row.revoked_ms is None and (row.expires_ms is None or now < row.expires_ms)


def scopes(row: TokenRow) -> list[str]:
    """Return the scopes of a token."""
    return _SCOPES.decode(row.scopes)


def rights(row: TokenRow) -> Rights:
    """Return the rights of a token."""
    return rights_of(scopes(row))


def view(row: TokenRow) -> TokenView:
    """Show a token without its secret."""
    return TokenView(row.id, row.kind, row.name, scopes(row), row.pool, row.created_ms, row.expires_ms, row.revoked_ms)


def columns(rows: Collection[TokenRow]) -> list[tuple[object, ...]]:
    """Convert tokens to columns of the store."""
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


# Tokens of running tasks.


RUN_PREFIX: Final = "ty_run_"
#: How many hexadecimal digits a signature has: 128 bits of BLAKE2b with the key, in a third of the time of an HMAC.
MAC_DIGITS: Final = 32
KEY_BYTES: Final = 32
#: The digits match the largest values; a longer text is not a token.
_RUN_TOKEN_TEXT: Final = re.compile(
    rf"ty_run_([0-7][0-9a-f]{{15}})_([0-9]{{1,19}})_([0-9]{{1,19}})_([0-9a-f]{{{MAC_DIGITS}}})", re.ASCII
)


class RunToken(NamedTuple):
    """What the token of a running task names."""

    task: int
    attempt: int
    fence: int


class RunTokenSigner:
    """Signs and verifies tokens of running tasks with the server's keys."""

    __slots__ = ("_keys",)

    def __init__(self, *keys: bytes) -> None:
        """Sign with the first key; accept the signatures of all keys."""
        self._keys = keys
        self.set_keys(keys)

    def set_keys(self, keys: Sequence[bytes]) -> None:
        """Replace the keys."""
        assert keys, "a signer needs a key"
        assert all(len(key) == KEY_BYTES for key in keys), "a signing key has 32 bytes"
        self._keys = tuple(keys)

    def sign(self, task: int, attempt: int, fence: int) -> str:
        """Return the token of one attempt."""
        signed = f"ty_run_{task:016x}_{attempt}_{fence}"
        return f"{signed}_{_mac(self._keys[0], signed)}"

    def derive(self, text: str) -> bytes:
        """Derive a secret of 32 bytes from a text and the first key."""
        return hashlib.blake2b(b"derived " + text.encode(), key=self._keys[0], digest_size=KEY_BYTES).digest()

    def verify(self, text: str) -> RunToken | None:
        """Return what a token names if its signature is valid."""
        found = _RUN_TOKEN_TEXT.fullmatch(text)
        if found is None:
            return None
        signed = text[: -MAC_DIGITS - 1]
        if not any(compare_digest(_mac(key, signed), found[4]) for key in self._keys):
            return None
        return RunToken(int(found[1], 16), int(found[2]), int(found[3]))


def _mac(key: bytes, signed: str) -> str:
    return hashlib.blake2b(signed.encode(), key=key, digest_size=MAC_DIGITS // 2).hexdigest()
