"""The composition root: connects the commands with the server, the bot, the engine and the local runner.

Nothing is imported before it is needed, so that `taskyard --version` and a Tab key answer at once.
"""

import os
import sys
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from taskyard.cli.exit_codes import Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from taskyard.cli.ports import BotSpec, ServeSpec
    from taskyard.core.graph import Fault as GraphFault
    from taskyard.engine.engine import Engine
    from taskyard.wire.api import Checkup
    from taskyard.wire.documents import Fault
    from taskyard.wire.progress import Observer, Outcome, Question


def main() -> None:
    """Run the program `taskyard`."""
    _open_streams()
    sys.exit(_call(sys.argv[1:]))


def _open_streams() -> None:
    """Make stdout and stderr writable: replace closed ones, and escape characters that they cannot encode."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _call(arguments: list[str]) -> int:
    if arguments[:1] == ["--version"]:
        sys.stdout.write(f"{_version()}\n")
        return Exit.OK
    try:
        from taskyard.cli import main as program  # noqa: PLC0415
        from taskyard.cli import output  # noqa: PLC0415

        code = program.call(Embedded(), arguments)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return code if output.write_stdout(_nothing_more) else code or Exit.ERROR


def _nothing_more() -> None:
    """Write nothing more: the caller only flushes stdout."""


def _version() -> str:
    from importlib.metadata import version  # noqa: PLC0415

    return version("taskyard")


class Embedded:
    """What the commands cannot ask a server for, done in this process."""

    def plan(self, text: bytes, name: str, limits: "Mapping[str, int]") -> "EmbeddedPlan":
        from taskyard.embedded.run import unmet_limits  # noqa: PLC0415
        from taskyard.engine import submit  # noqa: PLC0415

        value, of_text = _read(text, name)
        validation = submit.read(value, None, "taskyard")
        of_graph = validation.faults if validation.graph is None else unmet_limits(validation.graph, limits)
        _refuse(text, of_text, of_graph)
        assert validation.graph is not None, "what is no graph is refused"
        assert isinstance(value, dict), "a graph is an object"
        return EmbeddedPlan(value, limits, tuple(validation.graph.tasks), validation.graph.name or name)

    def check_up(self, database: str, repair: bool) -> "Checkup":
        import logging  # noqa: PLC0415

        from taskyard.engine import offline_doctor  # noqa: PLC0415

        # An error is printed once, in one line; the log of the packages below would only repeat it.
        logging.getLogger().addHandler(logging.NullHandler())
        return offline_doctor.repair(database) if repair else offline_doctor.check(database)

    def serve(self, spec: "ServeSpec", ready: "Callable[[str, str | None], None]") -> None:
        from taskyard.core.fleet import LEASE_MS  # noqa: PLC0415
        from taskyard.engine.engine import Engine  # noqa: PLC0415
        from taskyard.private_files import make_folder  # noqa: PLC0415
        from taskyard.server import serve, settings  # noqa: PLC0415

        with _told():
            settings.check_binding(spec.host, spec.authentication)
            said = settings.Settings(
                authentication=spec.authentication,
                tls_cert="" if spec.tls_cert is None else str(spec.tls_cert),
                tasks_max=spec.tasks_max or settings.REQUEST_TASKS_MAX,
                tls_key="" if spec.tls_key is None else str(spec.tls_key),
            )
            settings.check_certificate(said)
            # Bind first: a start that fails must not have made a token that was never printed.
            with closing(serve.listen(spec.host, spec.port)) as listener:
                if spec.folder is not None:
                    make_folder(spec.folder)
                with Engine.open(
                    spec.database,
                    scheduler_id=spec.scheduler_id,
                    lease_ms=spec.lease_ms or LEASE_MS,
                    name=_server_name(spec),
                ) as engine:
                    settings.make_seal_and_pool(engine)
                    serve.run(engine, said, listener, lambda url: _tell_ready(engine, spec, url, ready))

    def bot(self, spec: "BotSpec") -> int:
        from taskyard.bot import task_user  # noqa: PLC0415
        from taskyard.bot.agent import run  # noqa: PLC0415
        from taskyard.bot.config import BotConfig  # noqa: PLC0415
        from taskyard.cli import output  # noqa: PLC0415
        from taskyard.sdk.http import plaintext_token_warning, tls_context  # noqa: PLC0415

        if why := plaintext_token_warning(spec.url, spec.token):
            output.print_err(f"warning: {why}")

        with _told():
            user = None if spec.user is None else task_user.find(spec.user)
            said = spec.connected
            return run(
                BotConfig(
                    url=spec.url,
                    token=spec.token,
                    name=spec.name,
                    slots=spec.slots,
                    state=spec.state,
                    dimensions=spec.dimensions,
                    dimensions_file=spec.dimensions_file,
                    once=spec.once,
                    inherit=spec.inherit,
                    keep_output=spec.keep_output,
                    user=user,
                    ca_file=spec.ca_file,
                    tls=tls_context(spec.ca_file) if spec.ca_file else None,
                    connected=None if said is None else lambda welcome: said(welcome.pool),
                )
            )


class EmbeddedPlan(NamedTuple):
    """A validated graph."""

    document: "dict[str, Any]"
    limits: "Mapping[str, int]"
    labels: tuple[str, ...]
    name: str

    @property
    def asks(self) -> tuple[str, ...]:
        from taskyard.embedded.approvals import approvals_without_timeout  # noqa: PLC0415

        return tuple(approvals_without_timeout(self.document))

    def run(
        self,
        jobs: int,
        observer: "Observer",
        decide: "Callable[[Question | None], bool | None]",
        logs: "Path | None",
        show_output: bool,
    ) -> "Outcome":
        from dataclasses import replace  # noqa: PLC0415

        from taskyard.embedded.run import RunSpec, run_graph  # noqa: PLC0415

        with _told():
            spec = RunSpec(self.document, self.limits, self.labels, jobs, logs, show_output)
            return replace(run_graph(spec, observer, decide), name=self.name)


def _read(text: bytes, name: str) -> "tuple[object, tuple[Fault, ...]]":
    """Read a document. A faulty text that can still be read is validated as well, so that all faults are listed."""
    from taskyard.wire.documents import UnreadableDocument, read_document  # noqa: PLC0415

    try:
        return read_document(text, name), ()
    except UnreadableDocument as unreadable:
        if unreadable.value is None:
            raise
        return unreadable.value, unreadable.faults


def _refuse(text: bytes, of_text: "tuple[Fault, ...]", of_graph: "tuple[GraphFault, ...]") -> None:
    """Raise the faults of a document, if any, each with its line where that is known."""
    from taskyard.wire.documents import (  # noqa: PLC0415
        Fault,
        RefusedDocument,
        find_lines,
    )

    if of_text or of_graph:
        lines = find_lines(text, {fault.path for fault in of_graph})
        placed = (Fault(fault.message, fault.path, lines.get(fault.path)) for fault in of_graph)
        raise RefusedDocument([*of_text, *placed])


@contextmanager
def _told() -> "Iterator[None]":
    """Turn an error that keeps a server or a bot from starting into one line on stderr."""
    from taskyard.cli.ports import StartFailed  # noqa: PLC0415

    try:
        yield
    except _expected() as fault:
        raise StartFailed(str(fault)) from fault


def _expected() -> tuple[type[Exception], ...]:
    """List the exceptions whose text is a complete error message. Imported only after an error."""
    from taskyard.bot.task_user import Unsuitable  # noqa: PLC0415
    from taskyard.embedded.local_bot import BotDied  # noqa: PLC0415
    from taskyard.engine.errors import EngineError  # noqa: PLC0415
    from taskyard.private_files import NotPrivate  # noqa: PLC0415
    from taskyard.sdk.errors import Unset  # noqa: PLC0415
    from taskyard.server.settings import Exposed, Uncertified  # noqa: PLC0415
    from taskyard.store.migrate import TooNew, TooOld  # noqa: PLC0415
    from taskyard.store.queries import StoreUnavailable, TransactionConflict  # noqa: PLC0415

    return (
        BotDied,
        NotPrivate,
        EngineError,
        TooNew,
        TooOld,
        TransactionConflict,
        StoreUnavailable,
        Exposed,
        Uncertified,
        Unset,
        Unsuitable,
        OSError,
    )


def _server_name(spec: "ServeSpec") -> str:
    """Give a server a name that survives restarts. A database file has one server, which needs none."""
    import socket  # noqa: PLC0415

    return "" if spec.database.startswith("sqlite:") else f"{socket.gethostname()}:{spec.port}"


def _tell_ready(engine: "Engine", spec: "ServeSpec", url: str, ready: "Callable[[str, str | None], None]") -> None:
    """Print that the server is ready, with the first token if there is none yet; it is printed before it is stored."""
    from taskyard.server import settings  # noqa: PLC0415

    engine.mark_serving()

    def show(first: str | None) -> None:
        if spec.admin_token is not None:
            _keep_admin_token(engine, spec.admin_token, first)
        ready(url, first)

    if settings.first_token(engine, show) is None:
        show(None)


def _keep_admin_token(engine: "Engine", file: "Path", first: str | None) -> None:
    """Make sure that a file has an admin token. Whoever can open the database is an admin anyway."""
    from taskyard.cli.profiles import write_secret  # noqa: PLC0415
    from taskyard.private_files import narrow_files  # noqa: PLC0415
    from taskyard.server.settings import another_admin_token  # noqa: PLC0415

    narrow_files([file])
    if first is not None or not file.exists():
        write_secret(file, f"{first or another_admin_token(engine, 'serve --admin-token')}\n")
