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

    from taskyard.cli.ports import ArchiveSummary, BackupSpec, BotSpec, CeleryWorkerSpec, ServeSpec, TableMoved
    from taskyard.core.graph import Fault as GraphFault
    from taskyard.embedded.run_loop import LocalRun
    from taskyard.engine.backup import Manifest
    from taskyard.engine.engine import Engine
    from taskyard.files.store import FileStore
    from taskyard.sdk.local_inputs import LocalTree
    from taskyard.wire.api import Checkup
    from taskyard.wire.documents import Fault
    from taskyard.wire.progress import Decide


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
    """Implements what commands do in this process."""

    def plan(self, text: bytes, name: str, limits: "Mapping[str, int]") -> "EmbeddedPlan":
        from taskyard.embedded.run import unmet_limits  # noqa: PLC0415
        from taskyard.engine import submit  # noqa: PLC0415

        value, of_text = _read(text, name)
        value, trees = _with_local_files(value, text)
        validation = submit.read(value, None, "taskyard")
        of_graph = validation.faults if validation.graph is None else unmet_limits(validation.graph, limits)
        _refuse(text, of_text, of_graph)
        assert validation.graph is not None, "what is no graph is refused"
        assert isinstance(value, dict), "a graph is an object"
        return EmbeddedPlan(value, limits, tuple(validation.graph.tasks), validation.graph.name or name, trees)

    def check_up(self, database: str, repair: bool) -> "Checkup":
        import logging  # noqa: PLC0415

        from taskyard.engine import offline_doctor  # noqa: PLC0415

        # Errors are printed in one line; the log would repeat them.
        logging.getLogger().addHandler(logging.NullHandler())
        return offline_doctor.repair(database) if repair else offline_doctor.check(database)

    def serve(self, spec: "ServeSpec", ready: "Callable[[str, str | None], None]") -> None:
        from ipaddress import ip_network  # noqa: PLC0415

        from taskyard.core.fleet import LEASE_MS  # noqa: PLC0415
        from taskyard.engine.engine import Engine  # noqa: PLC0415
        from taskyard.private_files import make_folder  # noqa: PLC0415
        from taskyard.server import serve, settings  # noqa: PLC0415

        with _start_errors():
            settings.check_binding(spec.host, spec.authentication)
            said = settings.Settings(
                authentication=spec.authentication,
                tls_cert="" if spec.tls_cert is None else str(spec.tls_cert),
                tasks_max=spec.tasks_max or settings.REQUEST_TASKS_MAX,
                tls_key="" if spec.tls_key is None else str(spec.tls_key),
                files=spec.files,
                amqp=spec.amqp,
            )
            settings.check_certificate(said)
            settings.check_broker(said)
            # Bind first: a failed start must not leave a token that was never printed.
            with closing(serve.listen(spec.host, spec.port)) as listener:
                if spec.folder is not None:
                    make_folder(spec.folder)
                with Engine.open(
                    spec.database,
                    scheduler_id=spec.scheduler_id,
                    lease_ms=spec.lease_ms or LEASE_MS,
                    name=_server_name(spec.database, listener.getsockname()[1]),
                    secrets_key_file=spec.secrets_key_file,
                    events=spec.events,
                    periodic_passes=spec.periodic_passes,
                    webhook_networks=[ip_network(one) for one in spec.webhook_networks],
                ) as engine:
                    settings.make_seal_and_pool(engine)
                    _tell_lost_key(engine)
                    serve.run(engine, said, listener, lambda url: _tell_ready(engine, spec, url, ready))

    def back_up(self, spec: "BackupSpec", show: "Callable[[str, int, int], None]") -> "ArchiveSummary":
        from taskyard.engine import backup, keyring, offline_doctor  # noqa: PLC0415
        from taskyard.engine.clock import SystemClock  # noqa: PLC0415

        with _start_errors():
            url = offline_doctor.existing_address(spec.database)
            keys = keyring.keyring_of(url, spec.secrets_key_file).file if spec.include_keys else None
            if spec.include_keys and keys is None:
                raise backup.NotPossible("say where the keys of secrets are with --secrets-key-file")
            parts = backup.Parts(_existing_files(spec, url), spec.no_files, keys)
            return _summary(backup.back_up(url, spec.archive, parts, SystemClock(), show))

    def restore(self, spec: "BackupSpec", show: "Callable[[str, int, int], None]") -> "ArchiveSummary":
        from taskyard.engine import backup, keyring  # noqa: PLC0415
        from taskyard.engine.clock import SystemClock  # noqa: PLC0415
        from taskyard.server.file_store import ServerFiles  # noqa: PLC0415

        with _start_errors():
            if not spec.database:
                return _summary(backup.verify(spec.archive, show))
            url = _new_address(spec.database)
            place = ServerFiles(spec.files or "", url)
            files = None if spec.no_files or not place.location else lambda: place.store
            parts = backup.Parts(files, spec.no_files, keyring.keyring_of(url, spec.secrets_key_file).file)
            return _summary(backup.restore(spec.archive, url, parts, SystemClock(), show))

    def move_store(self, source: str, target: str, show: "Callable[[str, int, int], None]") -> "list[TableMoved]":
        from taskyard.cli.ports import TableMoved  # noqa: PLC0415
        from taskyard.engine import move_store, offline_doctor  # noqa: PLC0415

        with _start_errors():
            url = offline_doctor.existing_address(source)
            moved = move_store.move(url, _new_address(target), show)
            return [TableMoved(one.name, one.rows, one.digest) for one in moved]

    def add_secret_key(self, file: "Path") -> str:
        from taskyard.engine.keyring import add_key  # noqa: PLC0415

        with _start_errors():
            return add_key(file)

    def bot(self, spec: "BotSpec") -> int:
        from taskyard.bot import task_user  # noqa: PLC0415
        from taskyard.bot.agent import run  # noqa: PLC0415
        from taskyard.bot.caches import CacheLimits  # noqa: PLC0415
        from taskyard.bot.config import BotConfig  # noqa: PLC0415
        from taskyard.bot.health_check import CheckSpec  # noqa: PLC0415
        from taskyard.cli import output  # noqa: PLC0415
        from taskyard.sdk.http import plaintext_token_warning, tls_context  # noqa: PLC0415

        if why := plaintext_token_warning(spec.url, spec.token):
            output.print_err(f"warning: {why}")

        with _start_errors():
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
                    check=None if spec.check is None else CheckSpec(spec.check, spec.check_every_s),
                    caches=CacheLimits(spec.cache_age_s, spec.cache_free_percent),
                    keep_output=spec.keep_output,
                    user=user,
                    ca_file=spec.ca_file,
                    tls=tls_context(spec.ca_file) if spec.ca_file else None,
                    connected=None if said is None else lambda welcome: said(welcome.pool),
                    engine=spec.engine,
                    engine_options=spec.engine_options,
                )
            )

    def celery_worker(self, spec: "CeleryWorkerSpec") -> int:
        from taskyard.cli.ports import StartFailed  # noqa: PLC0415

        try:
            from taskyard.bot.engines.celery import worker  # noqa: PLC0415
        except ImportError as error:
            raise StartFailed(f"Celery is not installed: pip install 'taskyard[celery]' ({error})") from error
        with _start_errors():
            settings = worker.WorkerSettings(spec.state, spec.ca_file, spec.inherit)
            return worker.serve(spec.broker, spec.queue, spec.name, spec.slots, settings)


class EmbeddedPlan(NamedTuple):
    """A validated graph."""

    document: "dict[str, Any]"
    limits: "Mapping[str, int]"
    labels: tuple[str, ...]
    name: str
    trees: "tuple[LocalTree, ...]" = ()

    @property
    def asks(self) -> tuple[str, ...]:
        from taskyard.embedded.run import approvals_without_timeout  # noqa: PLC0415

        return tuple(approvals_without_timeout(self.document))

    @contextmanager
    def start(
        self, jobs: int, decide: "Decide", logs: "Path | None", show_output: bool, outputs: "Path | None" = None
    ) -> "Iterator[LocalRun]":
        from taskyard.embedded.run import RunSpec, started  # noqa: PLC0415

        spec = RunSpec(self.document, self.limits, self.name, self.labels, jobs, logs, show_output, self.trees)
        with _start_errors(), started(spec, decide) as run:
            yield run
            if outputs is not None:
                run.write_outputs(outputs)


def _read(text: bytes, name: str) -> "tuple[object, tuple[Fault, ...]]":
    """Read a document. A faulty text that can still be read is validated as well, so that all faults are listed."""
    from taskyard.wire.documents import UnreadableDocument, read_document  # noqa: PLC0415

    try:
        return read_document(text, name), ()
    except UnreadableDocument as unreadable:
        if unreadable.value is None:
            raise
        return unreadable.value, unreadable.faults


def _with_local_files(document: object, text: bytes) -> "tuple[object, tuple[LocalTree, ...]]":
    """Make trees of the files of this machine that a document names, and name their digests instead."""
    if not isinstance(document, dict) or not (b"local" in text and b"inputs" in text):
        return document, ()
    from taskyard.sdk.local_inputs import BadInputs, LocalInputs  # noqa: PLC0415
    from taskyard.wire.documents import Fault, RefusedDocument, find_lines  # noqa: PLC0415

    local = LocalInputs(os.getcwd())
    try:
        return local.resolved(document), tuple(local.trees.values())
    except BadInputs as bad:
        lines = find_lines(text, {path for _, path in bad.faults})
        faults = [Fault(message, path, lines.get(path)) for message, path in bad.faults]
        raise RefusedDocument(faults) from bad


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
def _start_errors() -> "Iterator[None]":
    """Turn expected errors into `StartFailed`, which commands print in one line."""
    from taskyard.cli.ports import StartFailed  # noqa: PLC0415

    try:
        yield
    except _expected() as fault:
        raise StartFailed(str(fault)) from fault


def _expected() -> tuple[type[Exception], ...]:
    """List the exceptions whose text is a complete error message. Imported only after an error."""
    from taskyard.bot.engines.protocol import EngineUnusable  # noqa: PLC0415
    from taskyard.bot.task_user import Unsuitable  # noqa: PLC0415
    from taskyard.embedded.local_bot import BotDied  # noqa: PLC0415
    from taskyard.engine.errors import EngineError  # noqa: PLC0415
    from taskyard.engine.keyring import NoKey  # noqa: PLC0415
    from taskyard.files.store import StoreBroken  # noqa: PLC0415
    from taskyard.private_files import NotPrivate  # noqa: PLC0415
    from taskyard.sdk.errors import Unset  # noqa: PLC0415
    from taskyard.server.settings import Exposed, NoBrokerClient, Uncertified  # noqa: PLC0415
    from taskyard.store.migrate import NotEmpty, TooNew, TooOld  # noqa: PLC0415
    from taskyard.store.queries import PoolerInTheWay, StoreUnavailable, TransactionConflict  # noqa: PLC0415
    from taskyard.wire.api import Unchecked  # noqa: PLC0415

    return (
        BotDied,
        NoKey,
        NotPrivate,
        EngineError,
        NotEmpty,
        StoreBroken,
        Unchecked,
        TooNew,
        TooOld,
        TransactionConflict,
        StoreUnavailable,
        PoolerInTheWay,
        Exposed,
        NoBrokerClient,
        Uncertified,
        Unset,
        Unsuitable,
        EngineUnusable,
        OSError,
    )


def _new_address(database: str) -> str:
    """Return the address of a database that is to be made, which may be given as a path."""
    return database if "://" in database else f"sqlite:///{database}"


def _existing_files(spec: "BackupSpec", url: str) -> "Callable[[], FileStore] | None":
    """Return what opens the place of the files of a database; None if there are none, or they are left out."""
    from taskyard.engine.backup import NotPossible  # noqa: PLC0415
    from taskyard.server.file_store import ServerFiles  # noqa: PLC0415

    place = ServerFiles(spec.files or "", url)
    if spec.no_files or not (spec.files or place.is_used):
        return None
    if not place.is_used:
        raise NotPossible(f"there is no folder {spec.files}")
    return lambda: place.store


def _summary(manifest: "Manifest") -> "ArchiveSummary":
    from taskyard.cli.ports import ArchiveSummary  # noqa: PLC0415

    return ArchiveSummary(
        taken_ms=manifest.taken_ms,
        taskyard=manifest.taskyard,
        schema=manifest.schema,
        tables=len(manifest.tables),
        rows=manifest.rows,
        has_files=manifest.has_files,
        files=sum(one.count for one in manifest.files),
        file_bytes=manifest.file_bytes,
        missing=manifest.missing,
        missing_named=manifest.missing_named,
        has_secrets=manifest.has_secrets,
        has_keys=manifest.has_keys,
    )


def _server_name(database: str, port: int) -> str:
    """Return a name that survives restarts on the same port. The only server of a database file needs none."""
    import socket  # noqa: PLC0415

    return "" if database.startswith("sqlite:") else f"{socket.gethostname()}:{port}"


def _tell_lost_key(engine: "Engine") -> None:
    """Say that secrets cannot be opened: all other work goes on, and tasks that name secrets wait."""
    from taskyard.cli import output  # noqa: PLC0415

    if trouble := engine.secrets.trouble():
        output.print_error(f"{trouble}; tasks that name secrets wait until then")


def _tell_ready(engine: "Engine", spec: "ServeSpec", url: str, ready: "Callable[[str, str | None], None]") -> None:
    """Print that the server is ready, with a first token if there is none. It is printed before it is stored."""
    from taskyard.server import settings  # noqa: PLC0415

    engine.mark_serving()

    def show(first: str | None) -> None:
        if spec.admin_token is not None:
            _keep_admin_token(engine, spec.admin_token, first)
        ready(url, first)

    if settings.first_token(engine, show) is None:
        show(None)


def _keep_admin_token(engine: "Engine", file: "Path", first: str | None) -> None:
    """Make sure that a file has an admin token. Users who can open the database are admins anyway."""
    from taskyard.cli.profiles import write_secret  # noqa: PLC0415
    from taskyard.private_files import narrow_files  # noqa: PLC0415
    from taskyard.server.settings import another_admin_token  # noqa: PLC0415

    narrow_files([file])
    if first is not None or not file.exists():
        write_secret(file, f"{first or another_admin_token(engine, 'serve --admin-token')}\n")
