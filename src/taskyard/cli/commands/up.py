"""The command `up`: a server and bots on this machine, in one go, with everything in one folder.

It starts them as programs of their own and looks after them. When it is told to end, the bots end first, while there is
still a server to report to. It speaks to the server as everybody does.
"""

import json
import os
import select
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from taskyard.cli import child_processes, profiles
from taskyard.cli.client import Server, connected
from taskyard.cli.commands.serve import SLOTS_MAX, give_address, port_option
from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import PATH, Number, command, output_option
from taskyard.cli.output import harmless, last_lines, print_err, print_error
from taskyard.cli.profiles import Profile
from taskyard.private_files import NotPrivate, make_folder

EXAMPLES: Final = """\
Examples:

    taskyard up                      a server and one bot, here
    taskyard up --bots 2 --slots 4   two bots, each with four tasks at a time
    taskyard up --data ./yard        keep everything in this folder
    sudo taskyard up --user nobody   tasks cannot read its tokens

Then, elsewhere: taskyard submit --wait nightly.yaml
"""
#: The profile by which other commands find it.
PROFILE: Final = "local"
BOTS_MAX: Final = 100
#: What the token of its bots is called.
BOTS_NAME: Final = "bots of this machine"
#: How long the server may take to be there: it may have to bring a large database to a new version.
READY_SECONDS_MAX: Final = 300.0
#: How long bots may take to end what they run, and the server to answer what it has accepted.
DRAIN_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 20.0
#: A bot that ends by itself is started again, after so long, and so often in a row: not if it lived for some time.
RESTART_SECONDS: Final = 1.0
RESTARTS_MAX: Final = 20
STEADY_SECONDS: Final = 60.0
#: The first line of a server is short.
LINE_BYTES_MAX: Final = 65_536
#: How much of its log is repeated when it does not start.
LOG_BYTES_SHOWN: Final = 16_384


@command("up", EXAMPLES)
@click.option(
    "--data",
    type=PATH,
    metavar="DIR",
    help="Data folder [default: taskyard in XDG_DATA_HOME or ~/.local/share].",
)
@click.option("--bots", type=Number(0, BOTS_MAX), default=1, metavar="N", help="Number of bots.")
@click.option(
    "--slots",
    type=Number(1, SLOTS_MAX),
    metavar="N",
    help="Number of tasks each bot runs at a time [default: the number of processors].",
)
@port_option
@click.option("--user", metavar="USER", help="User to run tasks as, who cannot read the data folder; needs root.")
@output_option("table")
def up(data: Path | None, bots: int, slots: int | None, port: int, user: str | None, output: str) -> int:
    """Start a server and bots on this machine, and look after them until a signal ends it.

    The address and a token are printed and kept in your profile, so that the
    other commands find them. Ctrl-C waits for
    running tasks; a second Ctrl-C stops them.
    """
    if user is not None and (fault := _user_fault(user)):
        print_error(f"cannot run tasks as another user: {fault}")
        return Exit.ERROR
    folder = (data or profiles.data_folder()).absolute()
    try:
        make_folder(folder)
    except (OSError, NotPrivate) as error:
        print_error(f"cannot keep anything in {folder}: {getattr(error, 'strerror', None) or error}")
        return Exit.ERROR
    return _Processes(folder, bots, slots or os.cpu_count() or 1, port, output, user).live()


@dataclass(slots=True)
class _Processes:
    """A server with its bots."""

    folder: Path
    bots: int
    slots: int
    port: int
    output: str
    user: str | None = None
    asked: int = 0  # how often somebody asked it to end
    url: str = ""
    bot_token: str = field(default="", repr=False)
    said: int = 0  # how long the server's log was before it was started
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    since: dict[int, float] = field(default_factory=dict)
    restarts: int = 0  # in a row

    def live(self) -> int:
        """Start, look after everything, and end."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)
        server = self._start_server()
        try:
            self._open(server)
            while not self.asked and server.poll() is None and self.restarts <= RESTARTS_MAX:
                time.sleep(child_processes.LOOK_SECONDS)
                self._look_after_bots()
            return self._verdict(server)
        except CommandFailed as ended:
            return ended.code
        finally:
            self._stop(server)

    def _ask(self, *_: object) -> None:
        self.asked += 1

    def _start_server(self) -> subprocess.Popen[bytes]:
        place = ["--host", "127.0.0.1", "--port", str(self.port), "--data", str(self.folder)]
        arguments = ["serve", *place, "--admin-token", str(self._token), "-o", "json"]
        self.said = self._log.stat().st_size if self._log.exists() else 0
        return child_processes.start(arguments, os.environ, self._log, read=True)

    def _open(self, server: subprocess.Popen[bytes]) -> None:
        """Wait for the server, start the bots, and tell where everything is."""
        self.url = self._address(server)
        token = _read(self._token)
        self.bot_token = self._new_bot_token(token)
        for number in range(self.bots):
            self.running[number] = self._start_bot(number)
        give_address(self.url, token, self.output)
        print_err(f"data folder: {harmless(str(self.folder))}; press Ctrl-C to stop")
        self._keep_profile(token)

    def _keep_profile(self, token: str) -> None:
        """Let the other commands find this server, unless people have said otherwise."""
        own = profiles.read()
        is_free = PROFILE not in own.profiles or own.profiles[PROFILE].by_up
        if is_free:
            try:
                profiles.save(Profile(PROFILE, self.url, token, by_up=True), use=own.default is None)
            except (profiles.CannotEdit, OSError) as fault:
                print_error(str(fault))
        if not is_free or own.default not in (None, PROFILE):
            wanted = f"--profile {PROFILE}" if is_free else "the two variables above"
            print_err(f"{profiles.path()} sends other commands to another server: use {wanted} to reach this one")

    def _address(self, server: subprocess.Popen[bytes]) -> str:
        """Read the server's first line, unless it ends before, having said why."""
        assert server.stdout is not None, "it was started to be read"
        until = time.monotonic() + READY_SECONDS_MAX
        said = b""
        while not said.endswith(b"\n") and not self.asked and time.monotonic() < until and len(said) < LINE_BYTES_MAX:
            if select.select([server.stdout], [], [], child_processes.LOOK_SECONDS)[0]:
                piece = os.read(server.stdout.fileno(), LINE_BYTES_MAX)
                if not piece:
                    break
                said += piece
        if not said.endswith(b"\n"):
            self._repeat_log()
            raise CommandFailed(Exit.OK if self.asked else Exit.ERROR)
        return str(json.loads(said)["url"])

    def _repeat_log(self) -> None:
        """Say why the server did not start: what it said is in its log."""
        with self._log.open("rb") as log:
            log.seek(self.said)
            for line in last_lines(log.read(LOG_BYTES_SHOWN).decode(errors="replace")):
                if not line.startswith("{"):  # what is logged about requests, perhaps by another server
                    print_err(line)

    def _new_bot_token(self, token: str) -> str:
        """Make a token for the bots, which is never in a file that tasks could read; that of the last start ends."""
        with connected(Server(self.url, token)) as client:
            for one in client.tokens():
                if (one.kind, one.name, one.revoked_ms) == ("bot", BOTS_NAME, None):
                    client.revoke_token(one.id)
            return client.new_token("bot", BOTS_NAME, pool="default").token

    def _start_bot(self, number: int) -> subprocess.Popen[bytes]:
        self.since[number] = time.monotonic()
        name = f"{socket.gethostname()}-{number + 1}"
        state = self.folder / "bots" / str(number + 1)
        arguments = ["bot", "--name", name, "--slots", str(self.slots), "--state", str(state), "--token-file", "-"]
        if self.user is not None:
            arguments += ["--user", self.user]
        env = child_processes.without_token() | {"TASKYARD_URL": self.url}
        log = self.folder / f"bot-{number + 1}.log"
        return child_processes.start(arguments, env, log, read=False, told=f"{self.bot_token}\n")

    def _look_after_bots(self) -> None:
        """Start again what ended by itself."""
        for number, bot in self.running.items():
            if bot.poll() is not None and not self.asked:
                self.restarts = 1 if time.monotonic() > self.since[number] + STEADY_SECONDS else self.restarts + 1
                print_err(f"bot {number + 1} ended with code {bot.returncode} and is restarted")
                time.sleep(RESTART_SECONDS)
                self.running[number] = self._start_bot(number)

    def _verdict(self, server: subprocess.Popen[bytes]) -> Exit:
        if self.asked:
            return Exit.OK
        what = "the server ended" if server.poll() is not None else "the bots keep ending"
        print_error(f"{what}; stopping everything")
        return Exit.ERROR

    def _stop(self, server: subprocess.Popen[bytes]) -> None:
        """End the bots while there is a server to report to, then the server."""
        if self.running:
            print_err("waiting for running tasks to finish; Ctrl-C again stops them")
        heard = self.asked
        child_processes.stop(list(self.running.values()), DRAIN_SECONDS_MAX, lambda: self.asked > heard)
        child_processes.stop([server], STOP_SECONDS_MAX, lambda: self.asked > heard + 1)

    @property
    def _token(self) -> Path:
        return self.folder / "admin.token"

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"


def _user_fault(name: str) -> str:
    """Say why tasks cannot run as a user, if they cannot."""
    from taskyard.bot.task_user import Unsuitable, find  # noqa: PLC0415 - few need it

    try:
        find(name)
    except Unsuitable as fault:
        return str(fault)
    return ""


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        print_error(f"cannot read {file}: {error.strerror}")
        raise CommandFailed(Exit.ERROR) from error
