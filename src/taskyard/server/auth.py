"""Who shows which token, and whether it is good. Tokens are looked up once in a while; a running task's, each time.

A look at the store is taken on the thread of whoever asks. What is known is forgotten after some seconds, so that a
token that another server revoked is soon worth nothing; one that this server revokes is forgotten at once.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from taskyard.core.machine import LEASED
from taskyard.core.matching import DEFAULT_POOL
from taskyard.engine.engine import Engine
from taskyard.engine.errors import outages
from taskyard.server import tokens
from taskyard.server.callers import ANYONE, Caller, OwnRun, run_actor
from taskyard.server.scopes import EVERYTHING, NOTHING
from taskyard.server.seals import RUN, RunToken, Seal
from taskyard.store.verbs.access import TokenRow

#: How long a token is believed without another look.
BELIEVED_S: Final = 5.0
#: How many tokens are remembered; then all of them are forgotten, and looked up anew.
REMEMBERED_MAX: Final = 10_000
#: No token is longer: what is longer is not looked at.
TOKEN_MAX: Final = 256
#: What the audit tells of a name.
_ACTOR_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Denial:
    """Why somebody may not: 401 if we do not know who it is, 403 if we do."""

    status: int
    code: str
    text: str
    actor: str = ""


@dataclass(frozen=True, slots=True)
class BotGrant:
    """A bot may come in, and this is its pool."""

    pool: str
    actor: str


@dataclass(frozen=True, slots=True)
class _Known:
    row: TokenRow
    caller: Caller
    until: float


class Auth:
    """Knows who shows which token."""

    def __init__(self, engine: Engine, seal: Seal, on: bool = True, tick: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._seal = seal
        self.on = on
        self._tick = tick
        self._known: dict[bytes, _Known] = {}
        #: Are told the id of a token that ends here.
        self.at_end: list[Callable[[str], None]] = []

    def caller(self, text: str | None) -> Caller | Denial:
        """Say who asks."""
        if text is not None and text.startswith(RUN):
            return self._running(text)
        if not self.on:
            return ANYONE
        if text is None:
            return Denial(401, "no_token", "this needs a token: send it as `Authorization: Bearer TOKEN`")
        return self.remembered(text) or self._looked_up(text)

    def bot(self, text: str | None) -> BotGrant | Denial:
        """Say whether a bot may come in, and into which pool."""
        return self.as_bot(self.caller(text) if self.on else ANYONE)

    def as_bot(self, found: Caller | Denial) -> BotGrant | Denial:
        """Say whether somebody who is known may come in as a bot, and into which pool."""
        if not self.on:
            return BotGrant(DEFAULT_POOL, ANYONE.actor)
        if isinstance(found, Denial):
            return found
        if found.kind != tokens.BOT or found.pool is None:
            return Denial(403, "forbidden", "this is for bots: it needs the token of a bot", found.actor)
        return BotGrant(found.pool, found.actor)

    def remembered(self, text: str) -> Caller | None:
        """Say who asks, if that is known without a look at the store."""
        if not self.on:
            return None if text.startswith(RUN) else ANYONE
        known = self._known.get(_key(text))
        if known is None or known.until < self._tick() or not tokens.is_good(known.row, self._engine.clock.now()):
            return None
        return known.caller

    def forget(self, id: str) -> None:
        """Believe a token no more."""
        self._known = {key: known for key, known in self._known.items() if known.row.id != id}
        for tell in self.at_end:
            tell(id)

    def _looked_up(self, text: str) -> Caller | Denial:
        spoken = tokens.read(text) if len(text) <= TOKEN_MAX else None
        if spoken is None:
            return _BAD
        with outages(), self._engine.store.read() as txn:
            row = txn.access.find([spoken.id]).get(spoken.id)
            self._seal.learn(txn.access.seals())  # another server may have changed the key
        if row is None or not tokens.is_right(spoken, row):
            return _BAD
        if not tokens.is_good(row, self._engine.clock.now()):
            return Denial(401, "bad_token", "this token is revoked, or over", _actor(row))
        caller = Caller(_actor(row), row.kind, tokens.rights(row), row.id, row.pool)
        if len(self._known) >= REMEMBERED_MAX:
            self._known = {}
        self._known[_key(text)] = _Known(row, caller, self._tick() + BELIEVED_S)
        return caller

    def _running(self, text: str) -> Caller | Denial:
        """Say which attempt asks, if it is still under way."""
        token = self._seal.read(text) if len(text) <= TOKEN_MAX else None
        run = None if token is None else self._run(token)
        if token is None or run is None:
            return Denial(401, "bad_token", "this token is not, or no more, that of a running task")
        return Caller(run_actor(token), "run", NOTHING if self.on else EVERYTHING, f"run {token.task:x}", run=run)

    def _run(self, token: RunToken) -> OwnRun | None:
        with outages(), self._engine.store.read() as txn:
            found = txn.tasks.look([token.task])
            if not found or found[0].state not in LEASED:
                return None
            record = found[0]
            submitter = txn.tasks.owned_definitions([record.id])[record.id][2]
            pools = txn.access.pools_of([record.graph])[record.graph]
        is_its_own = record.life.attempt == token.attempt and record.fence == token.fence
        return OwnRun(token, record.graph, pools, submitter) if is_its_own else None


_BAD: Final = Denial(401, "bad_token", "this is no token of this server")


def _key(text: str) -> bytes:
    """Name a token in memory without keeping it there."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _actor(row: TokenRow) -> str:
    return f"{row.name[:_ACTOR_MAX]} ({row.id})"
