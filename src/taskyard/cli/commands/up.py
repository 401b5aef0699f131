"""The command `up`: start a server and bots on this machine, with all data in one folder.

They are child processes; bots that die are restarted. At the end the bots are stopped first, while the server still
accepts their reports.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import webbrowser
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from taskyard.cli import child_processes, profiles
from taskyard.cli.client import Server, connected
from taskyard.cli.commands.serve import SLOTS_MAX, port_option, print_address
from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import PATH, Number, command, output_option
from taskyard.cli.output import harmless, last_lines, print_err, print_error
from taskyard.cli.profiles import Profile
from taskyard.private_files import NotPrivate, make_folder

EXAMPLES: Final = """\
Examples:

    taskyard up                      start a server and one bot
    taskyard up --bots 2 --slots 4   start two bots, each with four slots
    taskyard up --data ./yard        use this data folder
    sudo taskyard up --user nobody   run tasks as another user

Then, in another terminal: taskyard submit --wait nightly.yaml
"""
#: The profile that it writes for other commands.
PROFILE: Final = "local"
BOTS_MAX: Final = 100
#: The name of the token of its bots.
BOTS_NAME: Final = "bots of this machine"
#: How long the server may take to start: it may have to migrate a large database.
READY_SECONDS_MAX: Final = 300.0
#: How long bots may take to finish their tasks, and the server to answer open requests.
DRAIN_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 20.0
#: A bot that ends by itself is restarted after a pause, up to a number of times in a row; a bot that ran for
#: STEADY_SECONDS begins a new row.
RESTART_SECONDS: Final = 1.0
RESTARTS_MAX: Final = 20
STEADY_SECONDS: Final = 60.0
#: Longer than the first line of a server.
LINE_BYTES_MAX: Final = 65_536
#: How much of the log is shown if the server does not start.
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
@click.option(
    "--user", metavar="USER", help="User to run tasks as, who must not be able to read the data folder; needs root."
)
@click.option("--browser/--no-browser", default=True, help="Open the web page, on a desktop and from a terminal.")
@output_option("table")
def up(  # noqa: PLR0913, PLR0917 - each is an option
    data: Path | None, bots: int, slots: int | None, port: int, user: str | None, browser: bool, output: str
) -> int:
    """Start a server and bots on this machine.

    The address and a token are printed, and saved as the profile "local" for
    the other commands, with a link that signs in to the web page once. Ctrl-C
    waits for running tasks; Ctrl-C again stops them.
    """
    if user is not None and (fault := _user_fault(user)):
        print_error(f"cannot run tasks as another user: {fault}")
        return Exit.ERROR
    folder = (data or profiles.data_folder()).absolute()
    try:
        make_folder(folder)
    except (OSError, NotPrivate) as error:
        print_error(f"cannot use the data folder {folder}: {getattr(error, 'strerror', None) or error}")
        return Exit.ERROR
    return _Processes(folder, bots, slots or os.cpu_count() or 1, port, output, user, browser).run()


@dataclass(slots=True)
class _Processes:
    """A server with its bots."""

    folder: Path
    bots: int
    slots: int
    port: int
    output: str
    user: str | None = None
    browser: bool = True
    interrupts: int = 0  # how often it was asked to end
    url: str = ""
    bot_token: str = field(default="", repr=False)
    log_start: int = 0  # size of the log before the server started
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    since: dict[int, float] = field(default_factory=dict)
    restarts: int = 0  # in a row

    def run(self) -> int:
        """Start the processes, keep them running, and stop them."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)
        server = self._start_server()
        try:
            self._open(server)
            while not self.interrupts and server.poll() is None and self.restarts <= RESTARTS_MAX:
                time.sleep(child_processes.LOOK_SECONDS)
                self._restart_bots()
            return self._exit_code(server)
        except CommandFailed as ended:
            return ended.code
        finally:
            self._stop(server)

    def _ask(self, *_: object) -> None:
        self.interrupts += 1

    def _start_server(self) -> subprocess.Popen[bytes]:
        place = ["--host", "127.0.0.1", "--port", str(self.port), "--data", str(self.folder)]
        arguments = ["serve", *place, "--admin-token", str(self._token), "-o", "json"]
        self.log_start = self._log.stat().st_size if self._log.exists() else 0
        return child_processes.start(arguments, os.environ, self._log, read=True)

    def _open(self, server: subprocess.Popen[bytes]) -> None:
        """Wait for the server, start the bots, and print the address."""
        self.url = self._address(server)
        token = _read(self._token)
        self.bot_token = self._new_bot_token(token)
        for number in range(self.bots):
            self.running[number] = self._start_bot(number)
        print_address(self.url, token, self.output)
        self._show_page(token)
        print_err(f"data folder: {harmless(str(self.folder))}; press Ctrl-C to stop")
        self._save_profile(token)

    def _show_page(self, token: str) -> None:
        """Print a link that signs in to the page; open it on a desktop."""
        with connected(Server(self.url, token)) as client:
            link = f"{self.url}/#sign-in={client.sign_in_link().code}"
        print_err(f"web page, signs in once within 10 minutes: {link}")
        if self.browser and _has_desktop():
            webbrowser.open(link)

    def _save_profile(self, token: str) -> None:
        """Save the profile of this server, unless the user made one of that name."""
        own = profiles.read()
        is_free = PROFILE not in own.profiles or own.profiles[PROFILE].by_up
        if is_free:
            try:
                profiles.save(Profile(PROFILE, self.url, token, by_up=True), use=own.default is None)
            except (profiles.CannotEdit, OSError) as fault:
                print_error(str(fault))
        if not is_free or own.default not in (None, PROFILE):
            wanted = f"--profile {PROFILE}" if is_free else "the two variables above"
            print_err(f"the default profile in {profiles.path()} is another server: use {wanted} for this one")

    def _address(self, server: subprocess.Popen[bytes]) -> str:
        """Read the first line of the server; if there is none, print its log and fail the command."""
        assert server.stdout is not None, "it was started to be read"
        until = time.monotonic() + READY_SECONDS_MAX
        said = b""
        while (
            not said.endswith(b"\n") and not self.interrupts and time.monotonic() < until and len(said) < LINE_BYTES_MAX
        ):
            if select.select([server.stdout], [], [], child_processes.LOOK_SECONDS)[0]:
                piece = os.read(server.stdout.fileno(), LINE_BYTES_MAX)
                if not piece:
                    break
                said += piece
        if not said.endswith(b"\n"):
            self._print_log()
            raise CommandFailed(Exit.OK if self.interrupts else Exit.ERROR)
        return str(json.loads(said)["url"])

    def _print_log(self) -> None:
        """Print the log of a server that did not start."""
        with self._log.open("rb") as log:
            log.seek(self.log_start)
            for line in last_lines(log.read(LOG_BYTES_SHOWN).decode(errors="replace")):
                if not line.startswith("{"):  # a record of a request, perhaps to another server
                    print_err(line)

    def _new_bot_token(self, token: str) -> str:
        """Create a token for the bots, which is in no file that tasks could read; revoke the one of the last start."""
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
        return child_processes.start(arguments, env, log, read=False, stdin=f"{self.bot_token}\n")

    def _restart_bots(self) -> None:
        """Restart bots that ended by themselves."""
        for number, bot in self.running.items():
            if bot.poll() is not None and not self.interrupts:
                self.restarts = 1 if time.monotonic() > self.since[number] + STEADY_SECONDS else self.restarts + 1
                print_err(f"bot {number + 1} ended with code {bot.returncode} and is restarted")
                time.sleep(RESTART_SECONDS)
                self.running[number] = self._start_bot(number)

    def _exit_code(self, server: subprocess.Popen[bytes]) -> Exit:
        if self.interrupts:
            return Exit.OK
        what = "the server ended" if server.poll() is not None else "the bots keep ending"
        print_error(f"{what}; stopping everything")
        return Exit.ERROR

    def _stop(self, server: subprocess.Popen[bytes]) -> None:
        """Stop the bots while the server still accepts reports, then the server."""
        if self.running:
            print_err("waiting for running tasks to finish; Ctrl-C again stops them")
        before = self.interrupts
        child_processes.stop(list(self.running.values()), DRAIN_SECONDS_MAX, lambda: self.interrupts > before)
        child_processes.stop([server], STOP_SECONDS_MAX, lambda: self.interrupts > before + 1)

    @property
    def _token(self) -> Path:
        return self.folder / "admin.token"

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"


def _has_desktop() -> bool:
    """Whether a person sits in front of this machine: a terminal, and a screen that shows windows."""
    has_display = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return has_display and sys.stderr.isatty() and "SSH_CONNECTION" not in os.environ


def _user_fault(name: str) -> str:
    """Return why tasks cannot run as a user, or ""."""
    from taskyard.bot.task_user import Unsuitable, find  # noqa: PLC0415 - only --user needs it

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
