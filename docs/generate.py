"""Writes the generated parts of the docs anew, from the tables in the code.

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`; everything outside is written by people.
`--check` writes nothing and exits 1 when a page is stale. A test of the house does the same.
"""

import ast
import dataclasses
import inspect
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import msgspec
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from pydantic import TypeAdapter

from taskyard.bot.payloads import PASSED_ON
from taskyard.cli import main as program
from taskyard.cli import profiles
from taskyard.cli.exit_codes import MEANINGS
from taskyard.cli.options import Context, ServerOption
from taskyard.core import fleet
from taskyard.core.catalogue import model as catalogue_limits
from taskyard.core.catalogue import schema as catalogue_schema
from taskyard.core.events import KINDS
from taskyard.core.graph import FIELDS, REQUIRED, Field
from taskyard.core.graph import errors as graph_errors
from taskyard.core.graph import model as graph_limits
from taskyard.core.states import ARROWS, Outcome, Signal, State, effects, step
from taskyard.engine import validate, writer
from taskyard.engine.engine import Engine
from taskyard.files import blob_frames, digests
from taskyard.server import (
    amqp,
    auth,
    bot_api,
    connections,
    context,
    errors,
    external_workers,
    file_store,
    kept_layouts,
    requests,
    responses,
    serve,
    settings,
    tokens,
)
from taskyard.server.metrics import ServerMetrics
from taskyard.server.routes import access, health, output, session
from taskyard.server.routes import audit as audit_routes
from taskyard.server.routes import events as event_routes
from taskyard.server.routes import files as file_routes
from taskyard.server.routes import retention as retention_routes
from taskyard.server.routes import stats as stats_routes
from taskyard.server.routes import task_list as task_list_routes
from taskyard.server.routes import webhooks as webhook_routes
from taskyard.server.user_api import user_api
from taskyard.views import (
    audit,
    bots,
    deadlock,
    demand,
    dry_run,
    explain,
    explain_graph,
    graphs,
    history,
    layout,
    stats,
    task_list,
    tasks,
)
from taskyard.views import catalogue as catalogue_views
from taskyard.views import launches as launch_views
from taskyard.views import limits as limit_views
from taskyard.views import schedules as schedule_views
from taskyard.wire import api, attempt_limits, bot_protocol, documents, messages, yaml_reader

DOCS = Path(__file__).parent
#: The description of the API for the page, which is built where Taskyard itself cannot run.
PAGE_TYPES = DOCS.parent / "ui" / "openapi.json"
#: How limits are called.
_LIMIT = re.compile(r"^[A-Z][A-Z_]*_(MAX|MIN)(_MS|_S)?$|^(BURST_MAX|PER_SECOND|CACHE_S|KEEP_ALIVE_S|PAGE)$")
_PART = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> Mapping[Path, str]:
    """Give every page that has a generated part, as it should be."""
    found = (path for path in sorted(DOCS.rglob("*.md")) if _PART.search(path.read_text(encoding="utf-8")))
    written = {path: _PART.sub(_fill, path.read_text(encoding="utf-8")) for path in found}
    return {**written, PAGE_TYPES: page_types()}


def page_types() -> str:
    """Write the description of the API from which the page has its types: routes of people, without problems."""
    found = user_api(None).openapi()
    paths = {path: one for path, one in found["paths"].items() if not path.startswith("/api/v1/bot/")}
    for operation in (one for operations in paths.values() for one in operations.values()):
        operation["responses"] = {
            status: answer for status, answer in operation["responses"].items() if status.startswith("2")
        }
    schemas = {name: one for name, one in found["components"]["schemas"].items() if not _is_of_bots(name)}
    for schema in schemas.values():
        # The server sends every field, also those that have a default.
        schema["required"] = sorted(schema.get("properties", {}))
    described = {"openapi": found["openapi"], "info": found["info"], "paths": paths, "components": {"schemas": schemas}}
    return json.dumps(described, indent=1, sort_keys=True) + "\n"


def diagram() -> str:
    """Draw the machine as a Mermaid state diagram."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> unscheduled: submit"]
    for arrow in ARROWS:
        lines.append(f"    {arrow.source} --> {arrow.target}: {arrow.signal}")
        if arrow.again:
            lines.append(f"    {arrow.source} --> {arrow.again}: {arrow.signal}, again")
    return "\n".join([*lines, "    successful --> [*]", "```"])


def matrix() -> str:
    """The table of what every signal does in every state."""
    rows = ([f"**{state}**", *(_cell(state, signal) for signal in Signal)] for state in State)
    return _table(["", *Signal], rows)


def follows() -> str:
    """The table of the effects of each transition."""
    moves = dict.fromkeys(
        (arrow.source, end) for arrow in ARROWS for end in (arrow.target, arrow.again) if end is not None
    )
    rows = (_effect_row(source, target) for source, target in moves)
    return _table(["from", "to", "propagates", "queue", "mutexes and weight", "attempt", "round"], rows)


def events() -> str:
    """List the kinds of events."""
    return ", ".join(f"`{kind}`" for kind in KINDS)


def _is_of_bots(schema: str) -> bool:
    """Whether a schema describes a message of the bot protocol."""
    return schema.startswith("Bot") and hasattr(bot_protocol, schema.removeprefix("Bot"))


def event_fields() -> str:
    """List what an event carries."""
    notes = _notes(api.EventView)
    return _table(["field", "what it is"], ([f"`{one.name}`", notes[one.name]] for one in _fields(api.EventView)))


def event_schema() -> str:
    """Write the JSON Schema of an event."""
    schema = TypeAdapter(api.EventView).json_schema()
    for field in schema["properties"].values():
        del field["title"]
    schema["properties"]["kind"]["enum"] = list(KINDS)
    return f"```json\n{json.dumps(schema, indent=2)}\n```"


def server_settings() -> str:
    """List the settings of a server that is created in Python."""
    notes = _notes(settings.Settings)
    rows = ([f"`{one.name}`", f"`{one.default!r}`", notes[one.name]] for one in _fields(settings.Settings))
    return _table(["setting", "default", "what it is"], rows)


def passed_on() -> str:
    """Name what tasks have of the environment of their bot."""
    return ", ".join(f"`{name}`" for name in (*sorted(PASSED_ON), "LC_*"))


def message_schemas() -> str:
    """The JSON Schemas of the messages that a message broker carries."""
    found = ((kind.__name__, kind, inspect.getdoc(kind)) for kind in messages.SCHEMAS)
    parts = []
    for name, kind, said in found:
        schema = json.dumps(msgspec.json.schema(kind), indent=2)
        parts.append(f"### {name}\n\n{said}\n\n```json\n{schema}\n```")
    return "\n\n".join(parts)


def message_exchanges() -> str:
    """The exchanges to which events are published, by kind."""
    rows = ("| exchange | kind |", "| --- | --- |")
    return "\n".join([*rows, *(f"| `{messages.exchange_of('taskyard', kind)}` | `{kind}` |" for kind in KINDS)])


def metrics() -> str:
    """The table of the metrics of a server that has answered one request."""
    with tempfile.TemporaryDirectory() as folder, Engine.open(f"sqlite:///{folder}/yard.db") as engine:
        server_metrics = ServerMetrics(engine)
        server_metrics.count("GET", "/healthz", 200, 0.0)
        found = list(text_string_to_metric_families(server_metrics.text(with_demand=True).decode()))
    rows = ([f"`{_metric_name(one)}`", one.type, " ".join(_labels_of(one)), one.documentation] for one in found)
    return _table(["metric", "type", "labels", "what it tells"], (row for row in rows if "_created`" not in row[0]))


def fields() -> str:
    """List every field of the graph document, level by level."""
    return "\n\n".join(f"### {_TITLES[level]}\n\n{_field_table(table)}" for level, table in FIELDS.items())


def catalogue() -> str:
    """List every field of the documents of the catalogue, kind by kind."""
    tables = catalogue_schema.FIELDS.items()
    return "\n\n".join(f"### {_CATALOGUE_TITLES[level]}\n\n{_field_table(table)}" for level, table in tables)


def commands() -> str:
    """List what every field of every command takes."""
    others = {"beside a document": validate.ARGUMENTS, "of a limit": validate.LIMIT_ARGUMENTS}
    beside = [[said, f"`{name}`", one.takes] for said, table in others.items() for name, one in table.items()]
    tables = ((kind.__name__, validate.fields(kind)) for kind in validate.COMMANDS)
    rows = ([f"`{kind}`", f"`{name}`", one.takes] for kind, table in tables for name, one in table.items())
    return _table(["command", "field", "takes"], [*rows, *beside])


def routes() -> str:
    """List every route, by what it is about."""
    found: dict[str, list[list[str]]] = {}
    for path, operations in user_api(None).openapi()["paths"].items():
        for method, one in operations.items():
            statuses = " ".join(status for status in one["responses"] if status.startswith("2"))
            said = one.get("description", one["summary"]).partition("\n")[0]
            asked = " ".join(f"`{name}`" for name in _queries(one))
            row = [f"`{method.upper()} {path}`", said, needed(method, path, one), statuses, asked]
            found.setdefault(one["tags"][0], []).append(row)
    head = ["route", "what it does", "needs", "answers", "parameters"]
    return "\n\n".join(f"### {title.capitalize()}\n\n{_table(head, rows)}" for title, rows in found.items())


#: What the description of a route says, if it asks for another caller than one with a right.
_CALLERS: Mapping[str, str] = {
    "enrolment token": "an enrolment token",
    "the task's own token": "the task's own token",
    "the caller's own token": "any token",
    "a token in the body": "a token in the body",
    "whose cookie the request has": "a session",
    "the user's own token": "the token of a user",
}


def needed(method: str, path: str, operation: Mapping[str, Any]) -> str:
    """Say which right a route asks for: what its description says, and to look at anything, the right to read."""
    said = operation.get("description", "")
    if not path.startswith("/api/"):
        return "nothing"
    if path.startswith("/api/v1/bot/"):
        return "the token of a bot"
    for words, needs in _CALLERS.items():
        if words in said:
            return needs
    named = re.search(r"needs?\s+`([a-z]+)`", said, re.IGNORECASE)
    assert named or method == "get", f"{method} {path} does not say what it needs"
    return f"`{named[1] if named else 'read'}`"


def command_line(name: str) -> str:
    """The usage of a command and its arguments, from its help."""
    command = program.COMMANDS[name].load()
    context = Context(command, info_name=f"taskyard {name}", **command.context_settings)
    rows = _takes(context, [param for param in command.params if not isinstance(param, ServerOption)])
    takes = f"\n\n{_table(['takes', 'means'], rows)}" if rows else ""
    return f"```text\n{command.get_usage(context).partition(' ')[2]}\n```{takes}"


def server_options() -> str:
    """List the options that every command has that asks a server."""
    command = program.COMMANDS["graphs"].load()
    params = [param for param in command.params if isinstance(param, ServerOption)]
    return _table(["option", "means"], _takes(Context(command, **command.context_settings), params))


def exit_codes() -> str:
    """List the exit codes."""
    return _table(["code", "means"], ([str(code.value), text] for code, text in MEANINGS.items()))


def keys() -> str:
    """List the keys of both files, and the variables of the environment."""
    user = [[f"`{key}`", "your file", text] for key, text in profiles.KEYS.items()]
    own = [[f"`{key}`", "`[profiles.NAME]` in your file", text] for key, text in profiles.PROFILE_KEYS.items()]
    project = [[f"`{key}`", f"`{profiles.PROJECT_FILE}`", text] for key, text in profiles.PROJECT_KEYS.items()]
    return _table(["key", "where", "means"], [*user, *own, *project])


def environment() -> str:
    """List what commands read from the environment."""
    return _table(["variable", "means"], ([f"`{name}`", text] for name, text in profiles.VARIABLES.items()))


def _takes(context: Context, params: Iterable[click.Parameter]) -> list[list[str]]:
    """Name each parameter with its help."""
    records = [record for param in params if (record := param.get_help_record(context)) is not None]
    return [[f"`{names}`", " ".join(means.split())] for names, means in records]


def limits() -> str:
    """List every limit, by what it bounds."""
    return "\n\n".join(f"### {title}\n\n{_limits_of(modules)}" for title, modules in LIMITED.items())


#: Where limits stand, by what they bound.
LIMITED: Mapping[str, tuple[ModuleType, ...]] = {
    "Documents": (documents, yaml_reader, graph_errors, graph_limits, catalogue_limits),
    "Requests of people": (
        settings, serve, connections, context, requests, responses, errors, output, event_routes, health,
    ),
    "Files": (blob_frames, digests, file_routes, file_store),
    "What people are shown": (
        api, graphs, tasks, task_list, task_list_routes, retention_routes, bots, history, explain, explain_graph,
        dry_run, limit_views, catalogue_views, launch_views, schedule_views, deadlock, demand, layout, kept_layouts,
        stats, stats_routes,
    ),
    "Tokens, denials and the audit": (auth, tokens, access, session, audit_routes, audit),
    "Bots": (bot_api, bot_protocol, attempt_limits, validate, fleet),
    "The engine": (writer,),
    "Message brokers and webhooks": (messages, amqp, external_workers, webhook_routes),
}  # fmt: skip


def limits_in(module: ModuleType) -> Mapping[str, str]:
    """Name the limits of a module, each with the reason that stands above it."""
    path = module.__file__ or ""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    found: dict[str, str] = {}
    for node in ast.parse("\n".join(lines)).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        names = [one.id for one in ast.walk(target) if isinstance(one, ast.Name)] if target is not None else []
        found |= {name: _reason(lines, node.lineno - 1) for name in names if _LIMIT.search(name)}
    return found


def _reason(lines: list[str], at: int) -> str:
    """Read the comment above a constant; of several below one comment, it stands with the first."""
    end = at
    while at > 0 and lines[at - 1].startswith("#:"):
        at -= 1
    return " ".join(line.removeprefix("#:").strip() for line in lines[at:end])


def _limits_of(modules: Iterable[ModuleType]) -> str:
    rows = (
        [f"`{name}`", f"`{module.__name__.removeprefix('taskyard.')}`", _number(getattr(module, name)), reason]
        for module in modules
        for name, reason in limits_in(module).items()
    )
    return _table(["limit", "where", "value", "why"], rows)


def _number(value: object) -> str:
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else str(value)


def _fields(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind)


def _notes(kind: type) -> Mapping[str, str]:
    """Read the comments that stand beside the fields of a dataclass; a field without one explains itself."""
    lines = (line.partition("  # ") for line in inspect.getsource(kind).splitlines())
    return {said.partition(":")[0].strip(): note.strip() for said, _, note in lines if ":" in said}


def _metric_name(one: Metric) -> str:
    return f"{one.name}_total" if one.type == "counter" else one.name


def _labels_of(one: Metric) -> list[str]:
    return [
        f"`{label}`"
        for label in dict.fromkeys(name for sample in one.samples for name in sample.labels if name != "le")
    ]


def _queries(operation: Mapping[str, Any]) -> list[str]:
    return [one["name"] for one in operation.get("parameters", ()) if one["in"] != "path"]


_TITLES = {
    "graph": "The graph",
    "node": "A node: an entry of `tasks`",
    "requires": "An entry of `requires`",
    "reruns": "`reruns` as an object",
    "task": "A task",
    "slice": "A slice",
    "mutex": "A mutex",
    "payload": "A payload",
    "input": "An input",
    "output": "An output with a name",
    "secret": "An entry of `secrets` as an object",
    "ansible": "`ansible` as an object",
    "git": "`git` as an object",
    "approval": "`approval` as an object",
}


_CATALOGUE_TITLES = {
    "project": "`project`",
    "inventory": "`inventory`",
    "source": "An entry of `sources`",
    "group": "An entry of `groups`",
    "job_template": "`job_template`",
    "workflow_template": "`workflow_template`",
    "node": "An entry of `nodes`",
    "system_job_template": "`system_job_template`",
    "survey": "An entry of `survey`",
    "schedule": "`schedule`",
    "pool": "`pool`",
    "limit": "`limit`",
}


def _field_table(table: Iterable[Field]) -> str:
    rows = ([f"`{one.name}`", one.reader.takes, _default(one.default), one.doc] for one in table)
    return _table(["field", "takes", "left out", "meaning"], rows)


def _default(value: object) -> str:
    if value is REQUIRED:
        return "*required*"
    return "" if value in (None, "", ()) else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _cell(state: State, signal: Signal) -> str:
    once, again = step(state, signal), step(state, signal, again=True)
    if once.outcome is Outcome.MOVE:
        return once.target if once == again else f"{once.target} or {again.target}"
    return "=" if once.outcome is Outcome.ECHO else ""


def _effect_row(source: State, target: State) -> list[str]:
    found = effects(source, target)
    return [
        source,
        target,
        found.propagates or "",
        ("", "enters", "leaves")[found.queued],
        ("", "taken", "given back")[found.holding],
        ("", "starts", "ends")[found.leased],
        "new" if found.new_round else "",
    ]


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _fill(part: re.Match[str]) -> str:
    return f"{part[1]}{PARTS[part[2]]()}\n{part[3]}"


PARTS: Mapping[str, Callable[[], str]] = {
    **{f"command-{name.replace(' ', '-')}": partial(command_line, name) for name in program.COMMANDS},
    "catalogue": catalogue,
    "commands": commands,
    "diagram": diagram,
    "event-fields": event_fields,
    "event-schema": event_schema,
    "environment": environment,
    "events": events,
    "exit-codes": exit_codes,
    "fields": fields,
    "follows": follows,
    "keys": keys,
    "limits": limits,
    "matrix": matrix,
    "message-exchanges": message_exchanges,
    "message-schemas": message_schemas,
    "metrics": metrics,
    "passed-on": passed_on,
    "routes": routes,
    "server-settings": server_settings,
    "server-options": server_options,
}


def main() -> int:
    """Write stale pages, or with `--check` only name them."""
    stale = {path: text for path, text in pages().items() if path.read_text(encoding="utf-8") != text}
    for path, text in stale.items():
        print(path.relative_to(DOCS.parent))
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
    return int("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
