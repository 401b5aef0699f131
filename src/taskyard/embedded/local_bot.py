"""The bot of one run: a process of its own, with a temporary folder and the port of the server.

It starts before the modules of the server are loaded, so that both get ready at the same time: its first connection
waits at the port until there is a server. When this process ends, for whatever reason, the bot ends with all its tasks.
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
#: How long the bot may take to end. Its tasks have ended by then, or it was told to kill them.
STOP_SECONDS_MAX: Final = 20.0
#: A folder beside the logs, while tasks run, for output beyond what the store keeps.
REST: Final = ".rest"
#: How much of the log of a bot is read when it ends by itself.
LOG_BYTES_SHOWN: Final = 4_096


class BotDied(Exception):
    """The bot has ended by itself; the text has the last line of its log."""


class LocalBot:
    """A bot that runs while this is open."""

    folder: Path  # for all files of this run
    listener: socket.socket  # the port of the server
    token: TokenRow  # the bot's token as the server stores it

    def __init__(self, jobs: int, logs: Path | None = None) -> None:
        """Prepare a bot; with a folder for logs, it keeps all output of tasks there."""
        self.name = socket.gethostname()
        self._jobs = jobs
        self._rest = None if logs is None else logs.resolve() / REST
        self._left = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as made:
            folder = tempfile.TemporaryDirectory(prefix="taskyard-run-", ignore_cleanup_errors=True)
            self.folder = Path(made.enter_context(folder))
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
        """Tell whether the bot has ended."""
        return self._bot.poll() is not None

    def check(self) -> None:
        """Raise `BotDied` if the bot has ended."""
        if self.is_gone:
            raise BotDied(f"its bot has ended by itself: {self._last_words()}")

    def kill(self) -> None:
        """Have the bot kill its tasks at once, and end."""
        for number in (signal.SIGTERM, signal.SIGINT):  # two signals of one kind can arrive as one
            if not self.is_gone:
                self._bot.send_signal(number)

    def stop(self) -> None:
        """End the bot, while the server still answers its goodbye."""
        child_processes.stop([self._bot], STOP_SECONDS_MAX, lambda: False)

    def _start(self, secret: str) -> subprocess.Popen[bytes]:
        state = self.folder / "bot"
        arguments = ["bot", "--name", self.name, "--slots", str(self._jobs), "--state", str(state)]
        arguments += ["--inherit-env", "--token-file", "-"]
        if self._rest is not None:
            arguments += ["--keep-output", str(self._rest)]
        url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        env = child_processes.without_token() | {"TASKYARD_URL": url}
        # If this process dies, the bot has no server to report to: its runner kills its tasks at once.
        return child_processes.start(
            arguments, env, self._log, read=False, stdin=f"{secret}\n", orphaned=signal.SIGKILL
        )

    def _end_at_once(self) -> None:
        """Kill the bot if it still runs; its runner then ends the tasks."""
        if not self.is_gone:
            self._bot.kill()
            self._bot.wait()

    def _last_words(self) -> str:
        with self._log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES_SHOWN))
            said = log.read().decode(errors="replace").strip()
        return said.rpartition("\n")[2] or "its log is empty"

    @property
    def _log(self) -> Path:
        return self.folder / "bot.log"
