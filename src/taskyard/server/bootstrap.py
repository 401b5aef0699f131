"""The first start: the key of the seal, the pool `default`, and one token with which all others are made."""

import secrets
from collections.abc import Callable

from taskyard.core.matching import DEFAULT_POOL
from taskyard.engine.engine import Engine
from taskyard.engine.errors import outages
from taskyard.lifecycle.admission.pools import set_pool
from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.lifecycle.transaction import Passage
from taskyard.server import tokens
from taskyard.server.scopes import ADMIN
from taskyard.server.seals import KEY_BYTES, Seal
from taskyard.store.verbs.access import END

ACTOR = "the first start"


def prepare(engine: Engine) -> str | None:
    """Make everything that a server needs; return the first token, which is shown only this once."""
    make_seal_and_pool(engine)
    return first_token(engine, lambda _: None)


def make_seal_and_pool(engine: Engine) -> None:
    """Make the key of run tokens and the pool `default`, unless they are there."""
    key = secrets.token_bytes(KEY_BYTES)

    def act(passage: Passage) -> None:
        passage.txn.access.add_seal(key)
        if DEFAULT_POOL not in {pool.name for pool in passage.txn.passes.pools()}:
            set_pool(passage, DEFAULT_POOL, None, False, ACTOR)

    engine.transact(act)


def first_token(engine: Engine, show: Callable[[str], None]) -> str | None:
    """Make the token with which all others are made, unless there are tokens already; `show` it before it is stored.

    If the process ends in between, the token that was shown is not valid, and the next start shows another one.
    Stored first, it could be lost for good. Servers that start at once each store the token that they have shown.
    """
    with outages(), engine.store.read() as txn:
        if txn.access.page(END, 1):
            return None
    text, row = tokens.made(tokens.Wish(tokens.USER, "admin", (ADMIN,)), engine.clock.now())
    show(text)

    def act(passage: Passage) -> None:
        # It may be carried out again, should nobody know whether it was.
        if not passage.txn.access.find([row.id]):
            passage.txn.access.add(tokens.columns([row]))
            passage.audit(ACTOR, "make_token", NO_SUBJECT, f"{row.id}: {row.name}")

    engine.transact(act)
    return text


def seal_of(engine: Engine) -> Seal:
    """Read the seal; `prepare` has made it."""
    with engine.store.read() as txn:
        keys = txn.access.seals()
    assert keys, "prepare the database first"
    return Seal(*keys)


def another_admin_token(engine: Engine, actor: str) -> str:
    """Make one more token that may do everything."""
    text, row = tokens.made(tokens.Wish(tokens.USER, "admin", (ADMIN,)), engine.clock.now())

    def act(passage: Passage) -> None:
        # It may be carried out again, should nobody know whether it was.
        if not passage.txn.access.find([row.id]):
            passage.txn.access.add(tokens.columns([row]))
            passage.audit(actor, "make_token", NO_SUBJECT, f"{row.id}: {row.kind} {row.name}")

    engine.transact(act)
    return text
