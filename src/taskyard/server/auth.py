"""Who shows which token, and whether it is good. Tokens are looked up once in a while; a running task's, each time.

A look at the store is taken on the thread of whoever asks. What is known is forgotten after some seconds, so that a
token that another server revoked is soon worth nothing; one that this server revokes is forgotten at once.
"""

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope

from taskyard.core.ids import Key, text_of
from taskyard.core.matching import DEFAULT_POOL
from taskyard.core.states import LEASED
from taskyard.engine.engine import Engine
from taskyard.engine.errors import Trouble, outages
from taskyard.engine.failpoints import Boundary
from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.lifecycle.transaction import Transaction
from taskyard.server import tokens
from taskyard.server.settings import is_loopback
from taskyard.server.tokens import (
    ALL_RIGHTS,
    NO_RIGHTS,
    READ,
    RUN_PREFIX,
    SUBMIT,
    Rights,
    RunToken,
    RunTokenSigner,
    scope,
)
from taskyard.store.repo.tokens import TokenRow

# Who asks, and what they may do with a graph.


#: What a running task may do with its own graph: look at it, and add to it.
RUN_TOKEN_RIGHTS: Final = frozenset({READ, SUBMIT})


@dataclass(frozen=True, slots=True)
class RunScope:
    """The attempt that a running task speaks for, and the graph that it is part of."""

    token: RunToken
    graph: int
    pools: frozenset[str]  # where what it submits may run
    submitter: str = ""  # of the task


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who asks for something."""

    actor: str  # as the audit names them
    kind: str
    rights: Rights
    id: str = ""  # of the token
    pool: str | None = None
    run: RunScope | None = None

    @property
    def submitter(self) -> str:
        """Whose tasks it is that this caller submits: those of a running task belong to the submitter of that task."""
        return self.run.submitter if self.run is not None else self.id or self.actor

    def missing_scope(self, right: str, graph: int, pools: frozenset[str]) -> str | None:
        """Name what is missing for a right in a graph, or in a task of it: one of its pools is enough."""
        if self.run is not None:
            mine = graph == self.run.graph and right in RUN_TOKEN_RIGHTS
            return None if mine else f"{right} in this graph: a task's own token is for its own graph"
        enough = self.rights.has_in_any(right, pools)
        return None if enough else " or ".join(scope(pool, right) for pool in sorted(pools))

    def missing_scopes(self, right: str, pools: frozenset[str]) -> list[str]:
        """Name the scopes that are missing to have a right in all of some pools."""
        if self.run is None:
            return self.rights.missing_scopes(right, pools)
        return [] if right == SUBMIT and pools <= self.run.pools else [scope(pool, right) for pool in sorted(pools)]


ANONYMOUS: Final = Caller("anyone", "user", ALL_RIGHTS)


def run_actor(run: RunToken) -> str:
    """Say how the audit names a running task."""
    return f"task {text_of(Key(run.task))}-{run.attempt}"


#: How long a token lookup is cached.
CACHE_S: Final = 5.0
#: How many tokens are remembered; then all of them are forgotten, and looked up anew.
CACHED_TOKENS_MAX: Final = 10_000
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

    def __init__(
        self, engine: Engine, signer: RunTokenSigner, enabled: bool = True, tick: Callable[[], float] = time.monotonic
    ) -> None:
        self._engine = engine
        self._signer = signer
        self.enabled = enabled
        self._tick = tick
        self._known: dict[bytes, _Known] = {}
        #: Are told the id of a token that ends here.
        self.on_revoke: list[Callable[[str], None]] = []

    def authenticate(self, text: str | None) -> Caller | Denial:
        """Say who asks."""
        if text is not None and text.startswith(RUN_PREFIX):
            return self._authenticate_run(text)
        if not self.enabled:
            return ANONYMOUS
        if text is None:
            return Denial(401, "no_token", "this needs a token: send it as `Authorization: Bearer TOKEN`")
        return self.cached(text) or self._look_up(text)

    def authenticate_bot(self, text: str | None) -> BotGrant | Denial:
        """Say whether a bot may come in, and into which pool."""
        return self.bot_grant(self.authenticate(text) if self.enabled else ANONYMOUS)

    def bot_grant(self, found: Caller | Denial) -> BotGrant | Denial:
        """Say whether somebody who is known may come in as a bot, and into which pool."""
        if not self.enabled:
            return BotGrant(DEFAULT_POOL, ANONYMOUS.actor)
        if isinstance(found, Denial):
            return found
        if found.kind != tokens.BOT or found.pool is None:
            return Denial(403, "forbidden", "this is for bots: it needs the token of a bot", found.actor)
        return BotGrant(found.pool, found.actor)

    def cached(self, text: str) -> Caller | None:
        """Say who asks, if that is known without a look at the store."""
        if not self.enabled:
            return None if text.startswith(RUN_PREFIX) else ANONYMOUS
        known = self._known.get(_key(text))
        if known is None or known.until < self._tick() or not tokens.is_valid(known.row, self._engine.clock.now()):
            return None
        return known.caller

    def forget(self, id: str) -> None:
        """Believe a token no more."""
        self._known = {key: known for key, known in self._known.items() if known.row.id != id}
        for tell in self.on_revoke:
            tell(id)

    def _look_up(self, text: str) -> Caller | Denial:
        spoken = tokens.parse(text) if len(text) <= TOKEN_MAX else None
        if spoken is None:
            return _BAD
        with outages(), self._engine.store.read() as repo:
            row = repo.tokens.find([spoken.id]).get(spoken.id)
            self._signer.set_keys(repo.tokens.signing_keys())  # another server may have changed the key
        if row is None or not tokens.has_secret(spoken, row):
            return _BAD
        if not tokens.is_valid(row, self._engine.clock.now()):
            return Denial(401, "bad_token", "this token is revoked, or over", _actor(row))
        caller = Caller(_actor(row), row.kind, tokens.rights(row), row.id, row.pool)
        if len(self._known) >= CACHED_TOKENS_MAX:
            self._known = {}
        self._known[_key(text)] = _Known(row, caller, self._tick() + CACHE_S)
        return caller

    def _authenticate_run(self, text: str) -> Caller | Denial:
        """Say which attempt asks, if it is still under way."""
        token = self._signer.verify(text) if len(text) <= TOKEN_MAX else None
        run = None if token is None else self._run(token)
        if token is None or run is None:
            return Denial(401, "bad_token", "this token is not, or no more, that of a running task")
        return Caller(
            run_actor(token), "run", NO_RIGHTS if self.enabled else ALL_RIGHTS, f"run {token.task:x}", run=run
        )

    def _run(self, token: RunToken) -> RunScope | None:
        with outages(), self._engine.store.read() as repo:
            found = repo.tasks.read([token.task])
            if not found or found[0].state not in LEASED:
                return None
            record = found[0]
            submitter = repo.tasks.owned_definitions([record.id])[record.id][2]
            pools = repo.graphs.pools_of([record.graph])[record.graph]
        is_its_own = record.life.attempt == token.attempt and record.fence == token.fence
        return RunScope(token, record.graph, pools, submitter) if is_its_own else None


_BAD: Final = Denial(401, "bad_token", "this is no token of this server")


def _key(text: str) -> bytes:
    """Name a token in memory without keeping it there."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _actor(row: TokenRow) -> str:
    return f"{row.name[:_ACTOR_MAX]} ({row.id})"


# Denials leave audit rows: a few each second, and then a count, so that a flood of them cannot fill the disk.


#: How many are written one by one: so many at once, and so many more each second.
BURST_MAX: Final = 20
PER_SECOND: Final = 2.0
ACTION: Final = "denied"
_NOTE_MAX: Final = 500


class Denials:
    """Writes denials down. Used by one thread, the one of the event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._room = float(BURST_MAX)
        self._at = time.monotonic()
        self._unwritten = 0

    def record(self, actor: str, what: str) -> None:
        """Write a denial down, or only count it; nobody waits for it."""
        now = time.monotonic()
        self._room = min(BURST_MAX, self._room + (now - self._at) * PER_SECOND)
        self._at = now
        if self._room < 1:
            self._unwritten += 1
            return
        self._room -= 1
        others = f" (and {self._unwritten} more before)" if self._unwritten else ""
        note = f"{_clean(what)[:_NOTE_MAX]}{others}"
        self._unwritten = 0

        def act(transaction: Transaction) -> None:
            transaction.audit(actor, ACTION, NO_SUBJECT, note)

        with suppress(Trouble):  # whoever was denied is denied, also while nothing can be written
            self._engine.loop.begin(act, Boundary.OTHER)


def _clean(text: str) -> str:
    return "".join(one if one.isprintable() else "?" for one in text)


# Where a request comes from. Without tokens, whoever can connect may ask: also a page of a stranger, in somebody's
# browser on this machine. Such a page gives itself away by what browsers say of it, and is refused.
#
# Where tokens are asked for, none of this is needed: a browser has none to show.


#: What browsers say of a request that no page of a stranger has made.
_SAME_SITE: Final = frozenset({"", "same-origin", "none"})


def cross_site_fault(scope: Scope) -> str | None:
    """Say why a request may be that of a stranger's page; None when it is not."""
    said = {name: value.decode("latin-1") for name, value in scope["headers"] if name in _ORIGIN_HEADERS}
    host, origin = said.get(b"host", ""), said.get(b"origin")
    # A name that leads to this machine may be anybody's: only what is surely this machine counts.
    if host and not is_loopback(_name(host)):
        return "it asks for a host that is not surely this machine: use 127.0.0.1 or localhost"
    if origin is not None and origin.partition("://")[2] != host:
        return "it was made by a page of another origin"
    if said.get(b"sec-fetch-site", "") not in _SAME_SITE:
        return "it was made by a page of another site"
    return None


_ORIGIN_HEADERS: Final = frozenset({b"host", b"origin", b"sec-fetch-site"})


def _name(host: str) -> str:
    """Give the name of a host without its port; nothing for what is no host."""
    try:
        return urlsplit(f"//{host}").hostname or "?"
    except ValueError:
        return "?"
