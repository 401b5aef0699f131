"""The server of one run, in this process, on a port of this machine that only who has a token can use."""

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

#: How long the bot may take to be there.
READY_SECONDS_MAX: Final = 60.0
READY_LOOK_SECONDS: Final = 0.01


@contextmanager
def serving(bot: LocalBot) -> Iterator[Engine]:
    """Serve the bot, and give the engine that does; at the end the bot goes first."""
    # What server and engine log is for whoever runs a server; here it would only be in the way of the view.
    logging.getLogger().addHandler(logging.NullHandler())
    with _engine(bot.folder / "run.db") as engine:
        _prepare(engine, bot.token)
        with Server(engine, Settings(lazy_user_api=True), listener=bot.listener):
            try:
                yield engine
            finally:
                bot.stop()


def wait_for_bot(engine: Engine, bot: LocalBot, unless: Callable[[], bool]) -> bool:
    """Wait until the bot is there; False if somebody wants to end before."""
    until = time.monotonic() + READY_SECONDS_MAX
    while not _knows(engine, bot.name):
        if unless():
            return False
        bot.check()
        if time.monotonic() > until:
            raise BotDied(f"its bot was not there within {READY_SECONDS_MAX:g} seconds")
        time.sleep(READY_LOOK_SECONDS)
    return True


def _engine(file: Path) -> Engine:
    """Make the engine of a new database. Nobody else knows the file, so nobody has to be kept from it."""
    blank.create(file)
    return Engine(open_store(f"sqlite:///{file}"))


def _prepare(engine: Engine, token: TokenRow) -> None:
    """See that everything is there that a server and its bot need."""
    settings.prepare(engine)

    def act(transaction: Transaction) -> None:
        # It may be carried out again, should nobody know whether it was.
        if not transaction.repo.tokens.find([token.id]):
            transaction.repo.tokens.add(tokens.columns([token]))

    engine.transact(act)


def _knows(engine: Engine, bot: str) -> bool:
    with engine.store.read() as repo:
        return repo.read.bot(bot) is not None
