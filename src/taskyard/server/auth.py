"""Authentication: which caller a token stands for, and what the caller may do.

Lookups of user and bot tokens are cached for some seconds, so that a token that another server revoked soon stops
working; a token that this server revokes stops at once. The token of a running task is checked each time. Lookups read
the database on the calling thread.
"""

import hashlib
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope

from taskyard.core.graph.model import ADMIN_PRIORITIES
from taskyard.core.ids import Key, text_of
from taskyard.core.matching import DEFAULT_POOL
from taskyard.core.states import LEASED
from taskyard.engine.engine import Engine
from taskyard.engine.errors import EngineError, outages
from taskyard.engine.failpoints import Boundary
from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.lifecycle.transaction import Transaction
from taskyard.server import tokens
from taskyard.server.settings import is_loopback
from taskyard.server.tokens import (
    ADMIN,
    ALL_RIGHTS,
    NO_RIGHTS,
    READ,
    RUN_PREFIX,
    SUBMIT,
    URGENT,
    Rights,
    RunToken,
    RunTokenSigner,
    scope,
)
from taskyard.store.connection import Repo
from taskyard.store.repo.tokens import TokenRow
from taskyard.store.rows import TaskRecord

# Callers.


#: What a running task may do with its own graph.
RUN_TOKEN_RIGHTS: Final = frozenset({READ, SUBMIT})


@dataclass(frozen=True, slots=True)
class RunScope:
    """What the token of a running task covers: its attempt, and the graph of its task."""

    token: RunToken
    graph: int
    pools: frozenset[str]  # where tasks that it submits may run
    submitter: str = ""  # who submitted the task,
    user: str = ""  # the user for whom they run
    priority: int = 0  # of the task


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, with their rights."""

    actor: str  # the name in the audit log
    kind: str
    rights: Rights
    id: str = ""  # of the token
    pool: str | None = None
    run: RunScope | None = None

    @property
    def submitter(self) -> str:
        """Who counts as the submitter of this caller's tasks; for a running task, the submitter of that task."""
        return self.run.submitter if self.run is not None else self.id or self.actor

    @property
    def user(self) -> str:
        """For whom this caller's tasks run unless they say so; for a running task, for whom that task runs."""
        return self.run.user if self.run is not None else self.actor.removesuffix(f" ({self.id})")

    def missing_for_priorities(self, urgent: Mapping[int, frozenset[str]]) -> list[str]:
        """Name the scopes that are missing for priorities; a running task may give away its own priority."""
        if self.run is not None and (self.rights.admin or min(urgent) >= self.run.priority):
            return []
        lacks = (self.rights.missing_scopes(priority_right(one), pools) for one, pools in urgent.items())
        return sorted({scope for scopes in lacks for scope in scopes})

    def missing_scope(self, right: str, graph: int, pools: frozenset[str]) -> str | None:
        """Return the scope that is missing for a right in a graph or task: a right in one of its pools is enough."""
        if self.run is not None:
            mine = graph == self.run.graph and right in RUN_TOKEN_RIGHTS
            return None if mine else f"{right} in this graph: a task's own token is for its own graph"
        enough = self.rights.has_in_any(right, pools)
        return None if enough else " or ".join(scope(pool, right) for pool in sorted(pools))

    def missing_scopes(self, right: str, pools: frozenset[str]) -> list[str]:
        """Return the scopes that are missing for a right in all of some pools."""
        if self.run is None:
            return self.rights.missing_scopes(right, pools)
        return [] if right == SUBMIT and pools <= self.run.pools else [scope(pool, right) for pool in sorted(pools)]


def priority_right(priority: int) -> str:
    """Return the right that a priority needs beside `submit`."""
    return ADMIN if priority < ADMIN_PRIORITIES else URGENT


ANONYMOUS: Final = Caller("anyone", "user", ALL_RIGHTS)


def run_actor(run: RunToken) -> str:
    """Return the name of a running task in the audit log."""
    return f"task {text_of(Key(run.task))}-{run.attempt}"


#: How long a token lookup is cached.
CACHE_S: Final = 5.0
#: How many lookups are cached; when the cache is full, it is emptied.
CACHED_TOKENS_MAX: Final = 10_000
#: Longer texts are not tokens and are not looked up.
TOKEN_MAX: Final = 256
#: How much of a token's name the audit log repeats.
_ACTOR_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a caller is refused: 401 for an unknown caller, 403 for one without the right."""

    status: int
    code: str
    text: str
    actor: str = ""


_BAD_TOKEN: Final = Denial(401, "bad_token", "this is not a token of this server")


@dataclass(frozen=True, slots=True)
class BotGrant:
    """A bot that is accepted, with its pool."""

    pool: str
    actor: str
    token: str = ""  # the id of its token


@dataclass(frozen=True, slots=True)
class _Known:
    row: TokenRow
    caller: Caller
    until: float


class Auth:
    """Authenticates callers by their tokens."""

    def __init__(
        self,
        engine: Engine,
        signer: RunTokenSigner,
        enabled: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._signer = signer
        self.enabled = enabled
        self._monotonic = monotonic
        self._known: dict[bytes, _Known] = {}
        #: Called with the id of each token that this server revokes.
        self.on_revoke: list[Callable[[str], None]] = []

    def authenticate(self, text: str | None) -> Caller | Denial:
        """Return the caller that a token stands for."""
        if text is not None and text.startswith(RUN_PREFIX):
            return self._authenticate_run(text)
        if not self.enabled:
            return ANONYMOUS
        if text is None:
            return Denial(401, "no_token", "this needs a token: send it as `Authorization: Bearer TOKEN`")
        return self.cached(text) or self._look_up(text)

    def authenticate_bot(self, text: str | None) -> BotGrant | Denial:
        """Return the pool of the bot that a token stands for."""
        return self.bot_grant(self.authenticate(text) if self.enabled else ANONYMOUS)

    def bot_grant(self, found: Caller | Denial) -> BotGrant | Denial:
        """Turn a caller into a bot grant, or a denial if the caller is not a bot."""
        if not self.enabled:
            return BotGrant(DEFAULT_POOL, ANONYMOUS.actor)
        if isinstance(found, Denial):
            return found
        if found.kind != tokens.BOT or found.pool is None:
            return Denial(403, "forbidden", "this is for bots: it needs the token of a bot", found.actor)
        return BotGrant(found.pool, found.actor, found.id)

    def cached(self, text: str) -> Caller | None:
        """Return the caller that a token stands for if the lookup is cached; never reads the database."""
        if not self.enabled:
            return None if text.startswith(RUN_PREFIX) else ANONYMOUS
        return self._cached(_key(text))

    def forget(self, id: str) -> None:
        """Remove a token from the cache."""
        self._known = {key: known for key, known in self._known.items() if known.row.id != id}
        for tell in self.on_revoke:
            tell(id)

    def authenticate_session(self, secret: str) -> Caller | Denial:
        """Return the caller whose session of the page has this secret: the one that its token stands for."""
        return self.cached_session(secret) or self._look_up_session(secret)

    def cached_session(self, secret: str) -> Caller | None:
        """Return the caller of a session if the lookup is cached; never reads the database."""
        return self._cached(_session_key(secret))

    def forget_session(self, secret: str) -> None:
        """Remove a session from the cache."""
        self._known.pop(_session_key(secret), None)

    def _cached(self, key: bytes) -> Caller | None:
        known = self._known.get(key)
        if known is None or known.until < self._monotonic() or not tokens.is_valid(known.row, self._engine.clock.now()):
            return None
        return known.caller

    def _look_up_session(self, secret: str) -> Caller | Denial:
        with outages(), self._engine.store.read() as repo:
            found = repo.tokens.session(digest_of(secret), BROWSER) if len(secret) <= TOKEN_MAX else None
            row = None if found is None else repo.tokens.find([found[0]]).get(found[0])
        now = self._engine.clock.now()
        if found is None or row is None or found[1] <= now or not tokens.is_valid(row, now):
            return NO_SESSION
        return self._remember(_session_key(secret), row)

    def _look_up(self, text: str) -> Caller | Denial:
        parts = tokens.parse(text) if len(text) <= TOKEN_MAX else None
        if parts is None:
            return _BAD_TOKEN
        with outages(), self._engine.store.read() as repo:
            row = repo.tokens.find([parts.id]).get(parts.id)
            self._signer.set_keys(repo.tokens.signing_keys())  # another server may have changed the key
        if row is None or not tokens.has_secret(parts, row):
            return _BAD_TOKEN
        if not tokens.is_valid(row, self._engine.clock.now()):
            return Denial(401, "bad_token", "this token is revoked or expired", actor_of(row))
        return self._remember(_key(text), row)

    def _remember(self, key: bytes, row: TokenRow) -> Caller:
        """Cache the caller that a token stands for."""
        caller = Caller(actor_of(row), row.kind, tokens.rights(row), row.id, row.pool)
        if len(self._known) >= CACHED_TOKENS_MAX:
            self._known = {}
        self._known[key] = _Known(row, caller, self._monotonic() + CACHE_S)
        return caller

    def _authenticate_run(self, text: str) -> Caller | Denial:
        """Return the caller for the token of a running task, if its attempt is still leased."""
        token = self._signer.verify(text) if len(text) <= TOKEN_MAX else None
        run = None if token is None else self._run(token)
        if token is None or run is None:
            return Denial(401, "bad_token", "this token is not, or no longer, that of a running task")
        return Caller(
            run_actor(token), "run", NO_RIGHTS if self.enabled else ALL_RIGHTS, f"run {token.task:x}", run=run
        )

    def _run(self, token: RunToken) -> RunScope | None:
        with outages(), self._engine.store.read() as repo:
            found = repo.tasks.read([token.task])
            if not found or found[0].state not in LEASED:
                return None
            record = found[0]
            if record.life.attempt != token.attempt or not _has_fence(repo, record, token.fence):
                return None
            submitter, user = repo.task_list.owners([record.id])[record.id]
            pools = repo.graphs.pools_of([record.graph])[record.graph]
        current = token._replace(fence=record.fence)
        return RunScope(current, record.graph, pools, submitter, user, record.priority)


def _has_fence(repo: Repo, record: TaskRecord, fence: int) -> bool:
    """Whether a fence is that of the lease of a task, or that of its claim if its bot has adopted the attempt since."""
    if fence == record.fence:
        return True
    return record.id in (found := repo.attempts.open_of([record.id])) and found[record.id][2] == fence


def _key(text: str) -> bytes:
    """Return the cache key of a token, so that the token itself is not kept in memory."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _session_key(secret: str) -> bytes:
    """Return the cache key of a session."""
    return _key(f"session {secret}")


def actor_of(row: TokenRow) -> str:
    """Return the name of a token's user in the audit log."""
    return f"{row.name[:_ACTOR_MAX]} ({row.id})"


# Sessions of the page. A browser keeps the secret of its session in a cookie that scripts cannot read, and the server
# keeps a digest of it. A browser sends cookies by itself, so a request that changes something also needs a header that
# only the page itself can know, and an `Origin` that is this server.


COOKIE: Final = "taskyard_session"
HEADER: Final = "x-taskyard-session"
#: The kinds of sessions: of a browser, and of a link that signs in once.
BROWSER: Final = "browser"
LINK: Final = "link"
NO_SESSION: Final = Denial(401, "no_session", "the session is over: sign in again")
READ_METHODS: Final = frozenset({"GET", "HEAD"})


def digest_of(secret: str) -> str:
    """Return what is stored of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def header_token(secret: str) -> str:
    """Return what the requests of a session send as a header; the secret does not follow from it."""
    return hashlib.sha256(b"header of " + secret.encode("utf-8", "surrogatepass")).hexdigest()


def forged_request(scope: Scope, secret: str, origins: Collection[str]) -> str | None:
    """Return why a request with a session may come from another page; None if it does not."""
    if scope["method"] in READ_METHODS:
        return None
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    if headers.get(b"origin", "") not in {*origins, f"{scope['scheme']}://{headers.get(b'host', '')}"}:
        return "the Origin header does not name this server"
    if not compare_digest(headers.get(HEADER.encode(), "").encode(), header_token(secret).encode()):
        return f"the header {HEADER} is not that of this session"
    return None


# Denials are audited: a few each second, and then only counted, so that a flood of them cannot fill the disk.


#: How many denials in a row are recorded one by one, and how many each second after that.
BURST_MAX: Final = 20
PER_SECOND: Final = 2.0
ACTION: Final = "denied"
_NOTE_MAX: Final = 500


class Denials:
    """Records denials in the audit log. Only the thread of the event loop uses it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._room = float(BURST_MAX)
        self._at = time.monotonic()
        self._unwritten = 0

    def record(self, actor: str, what: str) -> None:
        """Record a denial, or only count it if there are too many; does not wait for the commit."""
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

        with suppress(EngineError):  # the denial stands, even if it cannot be recorded now
            self._engine.writer_thread.begin(act, Boundary.OTHER)


def _clean(text: str) -> str:
    return "".join(one if one.isprintable() else "?" for one in text)


# Cross-site requests. Without authentication, every process that can connect may send requests, and so may a web page
# of another site in a browser on this machine. Browsers mark such requests, and the server refuses them. With
# authentication this is not needed: the browser has no token to send.


#: Values of Sec-Fetch-Site for requests that no page of another site has made.
_SAME_SITE: Final = frozenset({"", "same-origin", "none"})
_ORIGIN_HEADERS: Final = frozenset({b"host", b"origin", b"sec-fetch-site"})


def cross_site_fault(scope: Scope) -> str | None:
    """Return why a request may come from a page of another site; None if it does not."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"] if name in _ORIGIN_HEADERS}
    host, origin = headers.get(b"host", ""), headers.get(b"origin")
    # The page's site may use a DNS name that resolves to this machine, so only loopback names and addresses count.
    if host and not is_loopback(_name(host)):
        return "the Host header does not name this machine: use 127.0.0.1 or localhost"
    if origin is not None and origin.partition("://")[2] != host:
        return "it comes from a page of another origin"
    if headers.get(b"sec-fetch-site", "") not in _SAME_SITE:
        return "it comes from a page of another site"
    return None


def _name(host: str) -> str:
    """Return the host name without the port; "?" if it is not valid."""
    try:
        return urlsplit(f"//{host}").hostname or "?"
    except ValueError:
        return "?"
