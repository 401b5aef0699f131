"""What a server is told when it starts. It never changes while the server runs."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
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
from taskyard.store.repo.tokens import END

#: How many requests of people may be under way at once; whoever comes then is asked to come again.
IN_FLIGHT_MAX: Final = 256
#: From how many commands that wait for the writer on the wishes of people are put off: what bots say goes first, and
#: is taken up to ten times as many.
QUEUE_MAX: Final = 1_000
#: How many requests may do nothing but wait: for a graph to settle, or for more output.
WAITING_MAX: Final = 1_024
#: How many of them may follow an output.
FOLLOWERS_MAX: Final = 64
#: How many tasks one request may ask for unless told: it takes seconds, and some hundred megabytes, to read more.
REQUEST_TASKS_MAX: Final = 100_000
#: How many threads look at the database or check documents for people.
THREADS_MAX: Final = 32
#: How long a stop waits for what is under way.
STOP_MAX_S: Final = 10
#: How long a connection may stay open between two requests: longer than any poll waits.
KEEP_ALIVE_S: Final = 75


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server is told."""

    public_url: str = ""  # where people find it, without a slash at the end; empty: addresses are relative
    authentication: bool = True  # off only where nobody else can connect
    in_flight_max: int = IN_FLIGHT_MAX  # how many requests of people may be under way at once
    queue_max: int = QUEUE_MAX  # with how many commands waiting people are asked to come again
    waiting_max: int = WAITING_MAX  # how many requests may do nothing but wait
    followers_max: int = FOLLOWERS_MAX  # how many of them may follow an output
    threads_max: int = THREADS_MAX  # how many threads work for people
    tasks_max: int = REQUEST_TASKS_MAX  # how many tasks one request may ask for, up to a million
    tls_cert: str = ""  # a file with the certificate for https, in PEM form; empty: plain HTTP
    tls_key: str = ""  # a file with its key; empty: it is in the same file
    people_later: bool = False  # the routes of people are made when the first of them comes


class Uncertified(ValueError):
    """A certificate, or its key, that cannot be used; the text says why."""


class Exposed(ValueError):
    """Everybody could do everything."""


def check_binding(host: str, auth_on: bool) -> None:
    """Refuse to be reachable from other machines without authentication."""
    if not auth_on and not is_loopback(host):
        raise Exposed(
            f"authentication is off and {host or 'every address'} can be reached from other machines: "
            "switch authentication on, or listen on 127.0.0.1"
        )


def check_certificate(settings: Settings) -> None:
    """Refuse a certificate that cannot be used, before anybody is served."""
    if not settings.tls_cert:
        return
    import ssl  # noqa: PLC0415 - without TLS it is not needed

    for file in filter(None, (settings.tls_cert, settings.tls_key)):
        try:
            open(file, "rb").close()
        except OSError as error:
            raise Uncertified(f"cannot read {file}: {error.strerror}") from error
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Nobody is asked for a password: a server starts by itself.
        context.load_cert_chain(settings.tls_cert, settings.tls_key or None, password="")
    except ssl.SSLError as error:
        files = f"{settings.tls_cert} and {settings.tls_key or 'the key in it'}"
        what = "are no certificate in PEM form with its key, the key without a password"
        raise Uncertified(f"{files} {what}: {error.reason or error}") from error


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can connect to an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name may lead anywhere


# The first start: the key of the seal, the pool `default`, and one token with which all others are made.


ACTOR = "the first start"


def prepare(engine: Engine) -> str | None:
    """Make everything that a server needs; return the first token, which is shown only this once."""
    make_seal_and_pool(engine)
    return first_token(engine, lambda _: None)


def make_seal_and_pool(engine: Engine) -> None:
    """Make the key of run tokens and the pool `default`, unless they are there."""
    key = secrets.token_bytes(KEY_BYTES)

    def act(transaction: Transaction) -> None:
        transaction.repo.tokens.add_signing_key(key)
        if DEFAULT_POOL not in {pool.name for pool in transaction.repo.admission.pools()}:
            set_pool(transaction, DEFAULT_POOL, None, False, ACTOR)

    engine.transact(act)


def first_token(engine: Engine, show: Callable[[str], None]) -> str | None:
    """Make the token with which all others are made, unless there are tokens already; `show` it before it is stored.

    If the process ends in between, the token that was shown is not valid, and the next start shows another one.
    Stored first, it could be lost for good. Servers that start at once each store the token that they have shown.
    """
    with outages(), engine.store.read() as repo:
        if repo.tokens.page(END, 1):
            return None
    text, row = tokens.new_token(tokens.TokenSpec(tokens.USER, "admin", (ADMIN,)), engine.clock.now())
    show(text)

    def act(transaction: Transaction) -> None:
        # It may be carried out again, should nobody know whether it was.
        if not transaction.repo.tokens.find([row.id]):
            transaction.repo.tokens.add(tokens.columns([row]))
            transaction.audit(ACTOR, "make_token", NO_SUBJECT, f"{row.id}: {row.name}")

    engine.transact(act)
    return text


def load_signer(engine: Engine) -> RunTokenSigner:
    """Read the seal; `prepare` has made it."""
    with engine.store.read() as repo:
        keys = repo.tokens.signing_keys()
    assert keys, "prepare the database first"
    return RunTokenSigner(*keys)


def another_admin_token(engine: Engine, actor: str) -> str:
    """Make one more token that may do everything."""
    text, row = tokens.new_token(tokens.TokenSpec(tokens.USER, "admin", (ADMIN,)), engine.clock.now())

    def act(transaction: Transaction) -> None:
        # It may be carried out again, should nobody know whether it was.
        if not transaction.repo.tokens.find([row.id]):
            transaction.repo.tokens.add(tokens.columns([row]))
            transaction.audit(actor, "make_token", NO_SUBJECT, f"{row.id}: {row.kind} {row.name}")

    engine.transact(act)
    return text
