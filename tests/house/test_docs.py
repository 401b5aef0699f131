"""The docs tell the truth: what is generated is fresh, what exists is documented, what is linked exists."""

import re
import subprocess
import sys
import tomllib
from enum import StrEnum
from pathlib import Path

import pytest

from taskyard.cli import table
from taskyard.cli.exits import Exit
from taskyard.core import states
from taskyard.core.graph import validate
from taskyard.engine.submit import unserved
from taskyard.wire.documents import read_document
from tests.house.tree import DOCS, ROOT, files, name

PAGES = sorted(path for path in files() if path.suffix == ".md")
VOCABULARY = [
    one for one in vars(states).values() if isinstance(one, type) and issubclass(one, StrEnum) and one is not StrEnum
]
RECORDS = sorted((DOCS / "decisions").glob("[0-9]*.md"))


def test_generated_pages_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout == "", "stale; run `make docs`"
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("word", [word for words_of_one in VOCABULARY for word in words_of_one], ids=repr)
def test_every_word_is_in_the_glossary(word: StrEnum) -> None:
    assert f"`{word}`" in (DOCS / "glossary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("state", states.State)
def test_every_state_has_its_line_in_the_page_of_states(state: states.State) -> None:
    assert re.search(rf"^\| `{state}` \| .+ \| .+ \|$", (DOCS / "states.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("target", re.findall(r"`?make ([a-z]+)`?", (ROOT / "README.md").read_text(encoding="utf-8")))
def test_every_make_target_the_readme_names_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def project() -> dict[str, list[str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {"": settings["project"]["dependencies"], **settings["dependency-groups"]}


@pytest.mark.parametrize("requirement", [one for group in project().values() for one in group])
def test_every_dependency_has_its_reason(requirement: str) -> None:
    package = re.split(r"[<>=\[]", requirement)[0]
    titles = [record.read_text(encoding="utf-8") for record in RECORDS]
    assert any(f"`{package}`" in text for text in titles), f"no record in docs/decisions names `{package}`"


@pytest.mark.parametrize("record", RECORDS, ids=name)
def test_a_decision_is_told_in_four_parts(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    assert text.startswith(f"# {int(record.name[:4])}. ")
    assert re.findall(r"^\*\*(.+?)\*\*", text, re.MULTILINE)[:4] == [
        "Question.", "Choice.", "Cost.", "What would change our mind.",
    ]  # fmt: skip


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    assert [int(record.name[:4]) for record in RECORDS] == list(range(1, len(RECORDS) + 1))
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    assert [record.name for record in RECORDS if record.name not in index] == []


def test_the_changelog_tells_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def examples(language: str) -> list[str]:
    pages = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
    fenced = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [block for page in pages for block in fenced.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("example", examples("yaml"))
def test_every_graph_in_the_docs_is_valid_and_can_be_run(example: str) -> None:
    whole = example if re.search("^tasks:", example, re.MULTILINE) else f"tasks:\n{example}"
    document = read_document(whole.encode(), "example.yaml")
    found = validate(document)
    assert found.faults == ()
    assert unserved(document, found.graph) == ()


@pytest.mark.parametrize("example", examples("python"))
def test_every_python_example_in_the_docs_runs(example: str) -> None:
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", table.COMMANDS.values(), ids=lambda command: command.name)
def test_every_command_and_option_is_in_the_page_of_commands(command: table.Command) -> None:
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    assert f"`taskyard {command.name}" in page
    options = [name for slot in command.syntax().options for name in (*slot.names, slot.off) if name]
    assert [one for one in options if f"`{one}" not in page] == []


def test_every_exit_code_is_in_the_page_of_commands() -> None:
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    assert [code for code in Exit if not re.search(rf"^\| {code.value} \| .+ \|$", page, re.MULTILINE)] == []


def test_the_page_of_reasons_has_every_reason_in_the_order_of_the_code() -> None:
    page = (DOCS / "why.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z_]+)` \| [a-z, ]+ \| .+ \|$", page, re.MULTILINE) == [*states.Reason]
