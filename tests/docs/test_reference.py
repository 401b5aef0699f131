"""The reference is complete: what the code writes, reads and returns is on its page, and nothing else is."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from taskyard import Client
from taskyard.core.events import KINDS
from tests.cli.program import taskyard
from tests.docs.tables import coded, names, rows
from tests.each_row import each_row
from tests.project.tree import DOCS, ROOT

SOURCE = ROOT / "src" / "taskyard"
#: The packages that write audit rows and bot events.
WRITERS = ("lifecycle", "engine", "server")
VARIABLE = re.compile(r"""["'](TASKYARD_[A-Z_]*[A-Z]|XDG_[A-Z]+_HOME|NO_COLOR|FORCE_COLOR|TERM|COLUMNS)["']""")


def test_every_kind_of_event_is_explained() -> None:
    assert names("events.md", "Of tasks and graphs")[: len(KINDS)] == list(KINDS)


def test_every_action_of_the_audit_is_explained_and_no_other() -> None:
    written = {
        action for call, module in (*calls("audit"), *calls("audit_each")) for action in values(call.args[1], module)
    }
    assert sorted(names("events.md", "The audit log")) == sorted(written)


def test_every_event_of_bots_is_explained_and_no_other() -> None:
    stored = {kind for call, module in calls("record_event") for kind in values(call.args[2], module)}
    bots = importlib.import_module("taskyard.lifecycle.bot_events")
    views = importlib.import_module("taskyard.views.bots")
    known = stored | {bots.CONNECTED, bots.ENDED, bots.MISSING, bots.ERROR, views.STARTED, views.ENDED}
    assert sorted(names("events.md", "Of bots")) == sorted(known)


def calls(name: str) -> Iterator[tuple[ast.Call, ModuleType]]:
    """All calls of a function, with their modules."""
    for path in sorted(one for part in WRITERS for one in (SOURCE / part).rglob("*.py")):
        found = [one for one in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(one, ast.Call)]
        called = [one for one in found if name in (getattr(one.func, "attr", ""), getattr(one.func, "id", ""))]
        whole = [one for one in called if len(one.args) > 2]
        for one in whole:
            yield one, importlib.import_module(".".join(path.relative_to(SOURCE.parent).with_suffix("").parts))


def values(argument: ast.expr, module: ModuleType) -> list[str]:
    """The values that an argument can have: a text, a name of the module, or one of two of these."""
    if isinstance(argument, ast.IfExp):
        return [*values(argument.body, module), *values(argument.orelse, module)]
    found = eval(compile(ast.Expression(argument), "argument", "eval"), vars(module))  # noqa: S307 - it is our own code
    assert isinstance(found, str)
    return [found]


@pytest.mark.parametrize(
    ("command", "heading"), [("serve", "A server"), ("bot", "A bot"), ("up", "Server and bots together")], ids=str
)
def test_every_flag_of_a_service_is_a_setting_and_no_other(command: str, heading: str) -> None:
    usage, _, _ = taskyard(command, "--help").stdout.partition("Examples:")
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", usage)) - {"--help", "--version"}
    page = {one.split()[0] for one in names("settings.md", heading) if one.startswith("--")}
    assert page - flags == set()
    assert flags - page == set()


def test_every_variable_that_the_code_names_is_a_setting() -> None:
    named = {one for path in SOURCE.rglob("*.py") for one in VARIABLE.findall(path.read_text(encoding="utf-8"))}
    assert sorted(named - set(names("settings.md", "The environment"))) == []


def test_every_method_of_the_client_is_on_its_page_and_no_other() -> None:
    public = {name for name, one in vars(Client).items() if not name.startswith("_") and callable(one)}
    listed = {one for row in rows("client.md", "Methods") for one in coded(row[1])}
    assert listed == public - {"close"}


def test_every_page_is_in_the_index_of_the_reference_or_of_the_readme() -> None:
    index = (DOCS / "reference.md").read_text(encoding="utf-8") + (ROOT / "README.md").read_text(encoding="utf-8")
    pages = [path.name for path in sorted(Path(DOCS).glob("*.md"))]
    assert [page for page in pages if f"{page})" not in index and f"{page}#" not in index] == []


@each_row("page", sorted(DOCS.glob("*.md")))
def test_links_to_a_heading_find_it(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = [
        (page.parent / (target or page.name), anchor)
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", text)
    ]
    assert [anchor for target, anchor in links if "://" not in str(target) and anchor not in anchors(target)] == []


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
