"""The server of one run, in this process, on a loopback port."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from taskyard.embedded.local_bot import BotDied, LocalBot
from taskyard.engine.engine import Engine
from taskyard.lifecycle.transaction import Transaction
from taskyard.server import settings, tokens
from taskyard.server.serve import Server
from taskyard.server.settings import Settings
from taskyard.store import blank
from taskyard.store.connection import open_store
from taskyard.store.repo.tokens import TokenRow

#: How long the bot may take to connect.
READY_SECONDS_MAX: Final = 60.0
READY_LOOK_SECONDS: Final = 0.01


@contextmanager
def serving(bot: LocalBot) -> Iterator[Engine]:
    """Serve the bot and yield the engine; at the end, stop the bot before the server."""
    # The log of the server is for its operators; here it would disturb the progress view.
    logging.getLogger().addHandler(logging.NullHandler())
    with _engine(bot.folder / "run.db") as engine:
        _prepare(engine, bot.token)
        with Server(engine, Settings(lazy_user_api=True), listener=bot.listener):
            try:
                yield engine
            finally:
                bot.stop()


def wait_for_bot(engine: Engine, bot: LocalBot, unless: Callable[[], bool]) -> bool:
    """Wait until the bot has connected; return False if `unless` becomes true first."""
    until = time.monotonic() + READY_SECONDS_MAX
    while not _knows(engine, bot.name):
        if unless():
            return False
        bot.check()
        if time.monotonic() > until:
            raise BotDied(f"its bot did not connect within {READY_SECONDS_MAX:g} seconds")
        time.sleep(READY_LOOK_SECONDS)
    return True


def _engine(file: Path) -> Engine:
    """Create a database and its engine. The file needs no lock: only this process knows it."""
    blank.create(file)
    return Engine(open_store(f"sqlite:///{file}"))


def _prepare(engine: Engine, token: TokenRow) -> None:
    """Store what a server needs, and the token of the bot."""
    settings.prepare(engine)

    def act(transaction: Transaction) -> None:
        # The transaction may be repeated, if it is unknown whether it was committed.
        if not transaction.repo.tokens.find([token.id]):
            transaction.repo.tokens.add(tokens.columns([token]))

    engine.transact(act)


def _knows(engine: Engine, bot: str) -> bool:
    with engine.store.read() as repo:
        return repo.read.bot(bot) is not None
