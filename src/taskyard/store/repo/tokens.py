"""Verbs about who may do what: tokens, the pools of graphs, and the seal. Whether somebody may is decided elsewhere."""

from collections.abc import Collection, Sequence
from typing import Final

from taskyard.core.states import Millis
from taskyard.core.structs import value
from taskyard.store.queries import Row, Session

#: Later than any moment, and after any id.
END: Final = (2**63 - 1, "")


@value
class TokenRow:
    """A token as it is stored: without its secret."""

    id: str
    kind: str
    name: str
    digest: str
    scopes: str  # a JSON array
    pool: str | None
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None


class TokenRepo:
    """What the tables `token`, `graph_pool` and `seal` can be asked and told."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def signing_keys(self) -> list[bytes]:
        """Read the key of the seal, and the one before it if that is still good; nothing before the first start."""
        return [bytes(row[0]) for row in self._session.fetch("select_signing_keys")]

    def set_signing_keys(self, keys: Sequence[bytes]) -> None:
        """Keep these keys and no others, that of the seal first."""
        self._session.execute("delete_signing_keys", 1)
        self._session.execute_many("insert_signing_keys", list(enumerate(keys, 1)))

    def add_signing_key(self, body: bytes) -> None:
        """Keep a key, if there is none."""
        self._session.execute("insert_first_signing_key", body)

    def add(self, rows: Sequence[Row]) -> None:
        """Insert tokens: id, kind, name, digest, scopes, pool, created, expires."""
        self._session.execute_many("insert_tokens", rows)

    def find(self, ids: Collection[str]) -> dict[str, TokenRow]:
        """Read tokens by their ids."""
        return {row[0]: TokenRow(*row) for row in self._session.fetch("select_tokens", ids)} if ids else {}

    def page(self, before: tuple[int, str], count: int) -> list[TokenRow]:
        """Read tokens that come after one of them, the newest first."""
        return [TokenRow(*row) for row in self._session.fetch("select_token_page", *before, count)]

    def revoke(self, id: str, now: Millis) -> bool:
        """Make a token good for nothing; tell whether that is news."""
        return self._session.execute("revoke_token", id, now) == 1

    def expire(self, id: str, at: int) -> None:
        """Make a token good for no longer than that."""
        self._session.execute("expire_token", id, at)

    def valid_with_scope(self, scope: str, now: Millis) -> list[str]:
        """Name the tokens that have a scope and are good; nobody else changes them meanwhile."""
        return [row[0] for row in self._session.fetch("select_valid_tokens_with_scope", f'%"{scope}"%', now)]
