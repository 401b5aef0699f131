"""Settings of a server, checks before it starts, and the first start on an empty database."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Final

from taskyard.core.matching import DEFAULT_POOL
from taskyard.engine.engine import Engine
from taskyard.engine.errors import outages
from taskyard.lifecycle.admission.pools import set_pool
from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.lifecycle.transaction import Transaction
from taskyard.server import tokens
from taskyard.server.tokens import ADMIN, KEY_BYTES, RunTokenSigner
from taskyard.store.repo.admission import PoolRow
from taskyard.store.repo.tokens import END

#: How many requests of the user API may be in progress at once; more are refused with 429.
IN_FLIGHT_MAX: Final = 256
#: From how many waiting commands of the writer on changes by users are refused. Bots have priority: ten times as many
#: of their commands are accepted.
QUEUE_MAX: Final = 1_000
#: How many requests may only wait: for a graph to settle, or for more output.
WAITING_MAX: Final = 1_024
#: How many of them may follow an output.
FOLLOWERS_MAX: Final = 64
#: The default limit of tasks per request: larger documents take seconds and some hundred megabytes to parse.
REQUEST_TASKS_MAX: Final = 100_000
#: How many threads read the database and check documents for the user API.
THREADS_MAX: Final = 32
#: How long a stop waits for requests in progress.
STOP_MAX_S: Final = 10
#: How long a connection may stay open between two requests: longer than any poll waits.
KEEP_ALIVE_S: Final = 75


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a server. They never change while it runs."""

    public_url: str = ""  # the address for users, without a slash at the end; empty: links are relative
    authentication: bool = True  # False only where no other machine or user can connect
    in_flight_max: int = IN_FLIGHT_MAX  # how many requests of users may be in progress at once
    queue_max: int = QUEUE_MAX  # with how many waiting commands changes by users are refused
    waiting_max: int = WAITING_MAX  # how many requests may only wait
    followers_max: int = FOLLOWERS_MAX  # how many of them may follow an output
    threads_max: int = THREADS_MAX  # how many threads serve users
    tasks_max: int = REQUEST_TASKS_MAX  # how many tasks one request may have, up to a million
    tls_cert: str = ""  # a PEM file with the certificate for https; empty: plain HTTP
    tls_key: str = ""  # a PEM file with its key; empty: the key is in the same file
    files: str = ""  # where files are kept: a folder or s3://BUCKET/PREFIX; empty: beside the database file
    amqp: str = field(default="", repr=False)  # the URL of a message broker, maybe with a password; empty: none
    lazy_user_api: bool = False  # load the user API at the first request for it


class Uncertified(ValueError):
    """A certificate, or its key, that cannot be used; the text says why."""


class Exposed(ValueError):
    """Other machines could connect without authentication."""


class NoBrokerClient(ValueError):
    """The client of message brokers is not installed."""


def check_binding(host: str, auth_on: bool) -> None:
    """Refuse to be reachable from other machines without authentication."""
    if not auth_on and not is_loopback(host):
        raise Exposed(
            f"authentication is off and {host or 'every address'} can be reached from other machines: "
            "switch authentication on, or listen on 127.0.0.1"
        )


def check_certificate(settings: Settings) -> None:
    """Refuse a certificate that cannot be used, before the first connection."""
    if not settings.tls_cert:
        return
    import ssl  # noqa: PLC0415 - not needed without TLS

    for file in filter(None, (settings.tls_cert, settings.tls_key)):
        try:
            open(file, "rb").close()
        except OSError as error:
            raise Uncertified(f"cannot read {file}: {error.strerror}") from error
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # An empty password, so that OpenSSL does not ask for one at the terminal.
        context.load_cert_chain(settings.tls_cert, settings.tls_key or None, password="")
    except ssl.SSLError as error:
        files = f"{settings.tls_cert} and {settings.tls_key or 'the key in it'}"
        what = "are not a certificate in PEM form with its key, the key without a password"
        raise Uncertified(f"{files} {what}: {error.reason or error}") from error


def check_broker(settings: Settings) -> None:
    """Refuse a message broker if its client is not installed."""
    if settings.amqp and find_spec("aio_pika") is None:
        raise NoBrokerClient("the client of message brokers is not installed: pip install 'taskyard[amqp]'")


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a DNS name may resolve to any address


# The first start: the signing key of run tokens, the pool `default`, and an admin token.


ACTOR = "the first start"


def prepare(engine: Engine) -> str | None:
    """Create everything that a server needs; return the first token, which is not stored and never shown again."""
    make_seal_and_pool(engine)
    return first_token(engine, lambda _: None)


def make_seal_and_pool(engine: Engine) -> None:
    """Create the signing key of run tokens and the pool `default`, unless they exist."""
    key = secrets.token_bytes(KEY_BYTES)

    def act(transaction: Transaction) -> None:
        transaction.repo.tokens.add_signing_key(key)
        if DEFAULT_POOL not in {pool.name for pool in transaction.repo.admission.pools()}:
            set_pool(transaction, PoolRow(DEFAULT_POOL, None, from_bots=False), ACTOR)

    engine.transact(act)


def first_token(engine: Engine, show: Callable[[str], None]) -> str | None:
    """Create the first admin token, unless there are tokens already; `show` it before its digest is stored.

    If the process ends in between, the token that was shown is not valid, and the next start shows another one. If it
    were stored first, it could be lost for good. Servers that start at the same time each store the token they showed.
    """
    with outages(), engine.store.read() as repo:
        if repo.tokens.page(END, 1):
            return None
    text, row = tokens.new_token(tokens.TokenSpec(tokens.USER, "admin", (ADMIN,)), engine.clock.now())
    show(text)

    def act(transaction: Transaction) -> None:
        # The writer may run this again if it cannot know whether the first commit succeeded.
        if not transaction.repo.tokens.find([row.id]):
            transaction.repo.tokens.add(tokens.columns([row]))
            transaction.audit(ACTOR, "make_token", NO_SUBJECT, f"{row.id}: {row.name}")

    engine.transact(act)
    return text


def load_signer(engine: Engine) -> RunTokenSigner:
    """Load the signer of run tokens; `prepare` has created its key."""
    with engine.store.read() as repo:
        keys = repo.tokens.signing_keys()
    assert keys, "prepare the database first"
    return RunTokenSigner(*keys)


def another_admin_token(engine: Engine, actor: str) -> str:
    """Create one more admin token."""
    text, row = tokens.new_token(tokens.TokenSpec(tokens.USER, "admin", (ADMIN,)), engine.clock.now())

    def act(transaction: Transaction) -> None:
        # The writer may run this again if it cannot know whether the first commit succeeded.
        if not transaction.repo.tokens.find([row.id]):
            transaction.repo.tokens.add(tokens.columns([row]))
            transaction.audit(actor, "make_token", NO_SUBJECT, f"{row.id}: {row.kind} {row.name}")

    engine.transact(act)
    return text
