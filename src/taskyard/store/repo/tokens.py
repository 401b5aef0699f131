"""Repository of tokens, sessions and signing keys. Permissions are checked elsewhere."""

from collections.abc import Collection, Sequence
from typing import Final

from taskyard.core.states import Millis
from taskyard.core.structs import value
from taskyard.store.queries import Row, Session

#: Sorts after every token.
END: Final = (2**63 - 1, "")


@value
class TokenRow:
    """A stored token, without its secret."""

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
    """The tables `token`, `session` and `signing_key`."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def signing_keys(self) -> list[bytes]:
        """Return the signing key, then the previous key while it is still accepted; nothing before the first start."""
        return [bytes(row[0]) for row in self._session.fetch("select_signing_keys")]

    def set_signing_keys(self, keys: Sequence[bytes]) -> None:
        """Replace all signing keys by these; the first one signs."""
        self._session.execute("delete_signing_keys", 1)
        self._session.execute_many("insert_signing_keys", list(enumerate(keys, 1)))

    def add_signing_key(self, body: bytes) -> None:
        """Store a signing key, unless there is one."""
        self._session.execute("insert_first_signing_key", body)

    def add(self, rows: Sequence[Row]) -> None:
        """Insert tokens: id, kind, name, digest, scopes, pool, created, expires."""
        self._session.execute_many("insert_tokens", rows)

    def find(self, ids: Collection[str]) -> dict[str, TokenRow]:
        """Return tokens by id."""
        return {row[0]: TokenRow(*row) for row in self._session.fetch("select_tokens", ids)} if ids else {}

    def page(self, before: tuple[int, str], count: int) -> list[TokenRow]:
        """Return tokens that come after a position, newest first."""
        return [TokenRow(*row) for row in self._session.fetch("select_token_page", *before, count)]

    def revoke(self, id: str, now: Millis) -> bool:
        """Revoke a token; return False if it was revoked before."""
        return self._session.execute("revoke_token", id, now) == 1

    def expire(self, id: str, at: int) -> None:
        """Let a token expire at a time, unless it expires earlier."""
        self._session.execute("expire_token", id, at)

    def valid_with_scope(self, scope: str, now: Millis) -> list[str]:
        """Return the ids of the valid tokens that have a scope, and lock them."""
        return [row[0] for row in self._session.fetch("select_valid_tokens_with_scope", f'%"{scope}"%', now)]

    def add_session(self, digest: str, kind: str, token: str, now: Millis, until: int) -> None:
        """Insert a session of a token."""
        self._session.execute_many("insert_sessions", [(digest, kind, token, now, until)])

    def session(self, digest: str, kind: str) -> tuple[str, int] | None:
        """Return the token of a session, and when the session ends."""
        return next(((row[0], row[1]) for row in self._session.fetch("select_session", digest, kind)), None)

    def end_session(self, digest: str, kind: str) -> bool:
        """Delete a session; return False if there was none."""
        return self._session.execute("delete_session", digest, kind) == 1

    def trim_sessions(self, token: str, now: Millis, kept: int) -> None:
        """Delete the sessions that are over, and of a token all but the newest ones."""
        self._session.execute("delete_old_sessions", token, now, kept)
