"""The bot of one run: a program of its own, and the folder and port that come and go with it.

It is started before anything else is loaded, so that both sides get ready at the same time: whoever connects before
there is a server waits at the port. It ends when this process does, however it does, and with it whatever it runs.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from taskyard.cli import child_processes
from taskyard.core.matching import DEFAULT_POOL
from taskyard.core.states import Millis
from taskyard.server import tokens
from taskyard.store.repo.tokens import TokenRow

#: How many connections may wait for the server.
BACKLOG: Final = 128
#: How long the bot may take to end. Nothing runs any more, or it was told to end that at once.
STOP_SECONDS_MAX: Final = 20.0
#: A folder beside the logs, while tasks run, for what the bot keeps because the store does not.
REST: Final = ".rest"
#: How much of what a bot said is repeated when it ends by itself.
LOG_BYTES_SHOWN: Final = 4_096


class BotDied(Exception):
    """The bot is gone and nobody told it to go; the text has what it said last."""


class LocalBot:
    """A bot, while it is open."""

    folder: Path  # for everything of this run
    listener: socket.socket  # where the server is expected
    token: TokenRow  # what a server has to know of the bot's token

    def __init__(self, jobs: int, logs: Path | None = None) -> None:
        """Prepare a bot; it keeps all that is printed, if there is a folder for logs."""
        self.name = socket.gethostname()
        self._jobs = jobs
        self._rest = None if logs is None else logs.resolve() / REST
        self._left = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as made:
            room = tempfile.TemporaryDirectory(prefix="taskyard-run-", ignore_cleanup_errors=True)
            self.folder = Path(made.enter_context(room))
            self.listener = made.enter_context(socket.create_server(("127.0.0.1", 0), backlog=BACKLOG))
            now = Millis(time.time_ns() // 1_000_000)
            secret, self.token = tokens.new_token(tokens.TokenSpec(tokens.BOT, "run", pool=DEFAULT_POOL), now)
            self._bot = self._start(secret)
            if self._rest is not None:
                made.callback(shutil.rmtree, self._rest, ignore_errors=True)
            made.callback(self._end_at_once)
            self._left = made.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.close()

    @property
    def is_gone(self) -> bool:
        """Whether the bot has ended."""
        return self._bot.poll() is not None

    def check(self) -> None:
        """See that the bot lives."""
        if self.is_gone:
            raise BotDied(f"its bot has ended by itself: {self._last_words()}")

    def kill(self) -> None:
        """Have the bot end what runs without any grace, and itself."""
        for number in (signal.SIGTERM, signal.SIGINT):  # two of one kind can arrive as one
            if not self.is_gone:
                self._bot.send_signal(number)

    def stop(self) -> None:
        """End the bot while there is a server to say goodbye to."""
        child_processes.stop([self._bot], STOP_SECONDS_MAX, lambda: False)

    def _start(self, secret: str) -> subprocess.Popen[bytes]:
        state = self.folder / "bot"
        arguments = ["bot", "--name", self.name, "--slots", str(self._jobs), "--state", str(state)]
        arguments += ["--inherit-env", "--token-file", "-"]
        if self._rest is not None:
            arguments += ["--keep-output", str(self._rest)]
        url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        env = child_processes.without_token() | {"TASKYARD_URL": url}
        # Without this process there is no server to report to: the bot's runner ends at once what runs.
        return child_processes.start(arguments, env, self._log, read=False, told=f"{secret}\n", orphaned=signal.SIGKILL)

    def _end_at_once(self) -> None:
        """Leave no bot behind, whatever went wrong; its runner ends what ran when it hangs up."""
        if not self.is_gone:
            self._bot.kill()
            self._bot.wait()

    def _last_words(self) -> str:
        with self._log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES_SHOWN))
            said = log.read().decode(errors="replace").strip()
        return said.rpartition("\n")[2] or "it said nothing"

    @property
    def _log(self) -> Path:
        return self.folder / "bot.log"
