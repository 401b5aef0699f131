"""A server and a bot for one run, in a folder that goes with them.

The server is in this process, on a port of this machine that only who has a token can use; the bot is a program of its
own, started first, so that both get ready at the same time. The end of either ends the run. The bot, and with it
whatever it runs, ends when this process does, however it does.
"""

import logging
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from taskyard.cli import children
from taskyard.core.matching import DEFAULT_POOL
from taskyard.core.words import Millis
from taskyard.engine.engine import Engine
from taskyard.engine.passage import Passage
from taskyard.server import bootstrap, serving, tokens
from taskyard.server.settings import Settings
from taskyard.store import blank
from taskyard.store.opening import open_store

#: How long the bot may take to be there.
READY_SECONDS_MAX: Final = 60.0
READY_LOOK_SECONDS: Final = 0.01
#: How long the bot may take to end. Nothing runs any more, or it was told to end that at once.
STOP_SECONDS_MAX: Final = 20.0
#: How much of what a bot said is repeated when it ends by itself.
LOG_BYTES_SHOWN: Final = 4_096


class Deserted(Exception):
    """The bot is gone and nobody told it to go; the text has what it said last."""


class Yard:
    """A server and a bot, while it is open."""

    engine: Engine

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._name = socket.gethostname()
        self._bot: subprocess.Popen[bytes] | None = None
        self._left = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as made:
            folder = Path(
                made.enter_context(tempfile.TemporaryDirectory(prefix="taskyard-run-", ignore_cleanup_errors=True))
            )
            listener = serving.listen("127.0.0.1", 0)
            made.callback(listener.close)
            listener.listen(serving.BACKLOG)  # a bot that comes before the server waits for it
            token, row = tokens.made(tokens.Wish(tokens.BOT, "run", pool=DEFAULT_POOL), _now())
            self._log = folder / "bot.log"
            self._bot = self._start_bot(folder / "bot", serving.url_of(listener), token)
            made.callback(self._stop_bot_at_once)
            self.engine = made.enter_context(_engine(folder))
            _prepare(self.engine, row)
            made.enter_context(serving.Server(self.engine, Settings(people_later=True), listener=listener))
            self._left = made.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The bot ends while there is a server to say goodbye to.
        with self._left:
            self._stop_bot()

    def wait_for_bot(self, unless: Callable[[], bool]) -> bool:
        """Wait until the bot is there; False if somebody wants to end before."""
        until = time.monotonic() + READY_SECONDS_MAX
        while not self._has_bot():
            if unless():
                return False
            self.check()
            if time.monotonic() > until:
                raise Deserted(f"its bot was not there within {READY_SECONDS_MAX:g} seconds")
            time.sleep(READY_LOOK_SECONDS)
        return True

    def check(self) -> None:
        """See that the bot lives."""
        if self.is_deserted:
            raise Deserted(f"its bot has ended by itself: {self._last_words()}")

    @property
    def is_deserted(self) -> bool:
        """Whether the bot is gone."""
        return self._bot is None or self._bot.poll() is not None

    def kill(self) -> None:
        """Have the bot end what runs without any grace, and itself."""
        self._tell_bot(signal.SIGTERM)
        self._tell_bot(signal.SIGINT)  # two of one kind can arrive as one

    def _has_bot(self) -> bool:
        with self.engine.store.read() as txn:
            return txn.reading.bot(self._name) is not None

    def _start_bot(self, state: Path, url: str, token: str) -> subprocess.Popen[bytes]:
        arguments = ["bot", "--name", self._name, "--slots", str(self._jobs), "--state", str(state), "--inherit-env"]
        # A token on a command line can be seen by everybody on the machine.
        env = os.environ | {"TASKYARD_URL": url, "TASKYARD_TOKEN": token}
        return children.start(arguments, env, self._log, read=False)

    def _stop_bot(self) -> None:
        assert self._bot is not None, "it was started"
        children.stop([self._bot], STOP_SECONDS_MAX, lambda: False)

    def _stop_bot_at_once(self) -> None:
        """Leave no bot behind, whatever went wrong; its runner ends what ran when it hangs up."""
        if self._bot is not None and self._bot.poll() is None:
            self._bot.kill()
            self._bot.wait()

    def _tell_bot(self, number: signal.Signals) -> None:
        if self._bot is not None and self._bot.poll() is None:
            self._bot.send_signal(number)

    def _last_words(self) -> str:
        with self._log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - LOG_BYTES_SHOWN))
            said = log.read().decode(errors="replace").strip()
        return said.rpartition("\n")[2] or "it said nothing"


def _engine(folder: Path) -> Engine:
    """Make the engine of a new database."""
    # What server and engine log is for whoever runs a server; here it would only be in the way of the view.
    logging.getLogger().addHandler(logging.NullHandler())
    file = folder / "run.db"
    blank.make(file)
    return Engine(open_store(f"sqlite:///{file}"))


def _prepare(engine: Engine, bot: tokens.TokenRow) -> None:
    """See that everything is there that a server and its bot need."""
    bootstrap.prepare(engine)

    def act(passage: Passage) -> None:
        # It may be carried out again, should nobody know whether it was.
        if not passage.txn.access.find([bot.id]):
            passage.txn.access.add(tokens.columns([bot]))

    engine.transact(act)


def _now() -> Millis:
    return Millis(time.time_ns() // 1_000_000)
