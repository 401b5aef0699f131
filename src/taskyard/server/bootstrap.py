"""The first start: the key of the seal, the pool `default`, and one token with which all others are made."""

import secrets

from taskyard.core.matching import DEFAULT_POOL
from taskyard.engine.engine import Engine
from taskyard.engine.passage import Passage
from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.lifecycle.pools import set_pool
from taskyard.server import tokens
from taskyard.server.scopes import ADMIN
from taskyard.server.seals import KEY_BYTES, Seal
from taskyard.store.verbs.access import END

ACTOR = "the first start"


def prepare(engine: Engine) -> str | None:
    """See that everything is there that a server needs; give the first token, which is told this once."""
    key = secrets.token_bytes(KEY_BYTES)
    text, row = tokens.made(tokens.Wish(tokens.USER, "admin", (ADMIN,)), engine.clock.now())

    def act(passage: Passage) -> bool:
        access = passage.txn.access
        access.add_seal(key)
        if DEFAULT_POOL not in {pool.name for pool in passage.txn.passes.pools()}:
            set_pool(passage, DEFAULT_POOL, None, False, ACTOR)
        found = access.page(END, 1)
        if found:
            # The same one, if this is carried out again because nobody knows whether it was.
            return found[0].id == row.id
        access.add(tokens.columns([row]))
        passage.audit(ACTOR, "make_token", NO_SUBJECT, f"{row.id}: {row.name}")
        return True

    return text if engine.transact(act) else None


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
