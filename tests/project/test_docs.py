"""The docs are complete: generated parts are up to date, all is documented, and links lead somewhere."""

import re
import subprocess
import sys
import tomllib
from enum import StrEnum
from pathlib import Path

from taskyard.cli.exit_codes import Exit
from taskyard.cli.main import COMMANDS
from taskyard.core import states
from taskyard.core.catalogue.parse import read_documents
from taskyard.core.catalogue.plan import Facts, Rights, plan
from taskyard.core.graph import validate
from taskyard.wire.documents import read_document
from taskyard.wire.documents import read_documents as read_document_files
from tests.project.tree import DOCS, ROOT, SOURCES, files, name

PAGES = sorted(path for path in files() if path.suffix == ".md")
VOCABULARY = [
    one for one in vars(states).values() if isinstance(one, type) and issubclass(one, StrEnum) and one is not StrEnum
]
RECORDS = sorted((DOCS / "decisions").glob("[0-9]*.md"))


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_generated_pages_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout == "", "stale; run `make docs`"
    assert done.returncode == 0, done.stderr


def test_every_word_is_in_the_glossary_and_every_state_in_the_page_of_states() -> None:
    glossary, page = (read(DOCS / page) for page in ("glossary.md", "states.md"))
    assert [word for enum in VOCABULARY for word in enum if f"`{word}`" not in glossary] == []
    rows = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", page, re.MULTILINE)
    assert [state for state in states.State if state not in rows] == []


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        text = re.sub(r"```.*?```", "", read(page), flags=re.DOTALL)
        targets = [target for target in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in target]
        assert [target for target in targets if not (page.parent / target).exists()] == [], name(page)


def test_every_file_and_function_that_the_design_names_exists() -> None:
    text = (DOCS / "design.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:[\w-]+/)*[\w-]+(?:\.py|\.sql|\.txt|/))`", text)
    assert [path for path in paths if not (ROOT / path).exists() and not any(SOURCES.rglob(path))] == []
    named = re.findall(r"`([\w/]+\.py)`: `(\w+)`", text)
    named += [(path, name) for name, path in re.findall(r"`(\w+)` in `([\w/]+\.py)`", text)]
    assert len(named) > 10
    missing = []
    for path, function in named:
        code = (SOURCES / path).read_text(encoding="utf-8")
        if not re.search(rf"^ *(?:async )?(?:def |class )?{function}\b", code, re.MULTILINE):
            missing.append(f"{path}: {function}")
    assert missing == []


def test_every_make_target_the_readme_names_exists() -> None:
    makefile = read(ROOT / "Makefile")
    targets = re.findall(r"`?make ([a-z]+)`?", read(ROOT / "README.md"))
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def test_every_dependency_has_its_reason() -> None:
    settings = tomllib.loads(read(ROOT / "pyproject.toml"))
    groups = [settings["project"]["dependencies"], *settings["dependency-groups"].values()]
    packages = [re.split(r"[<>=\[]", requirement)[0] for group in groups for requirement in group]
    records = "\n".join(map(read, RECORDS))
    assert [package for package in packages if f"`{package}`" not in records] == [], "no record in docs/decisions"


def test_decisions_have_four_parts_are_numbered_without_gaps_and_listed() -> None:
    for record in RECORDS:
        text = read(record)
        assert text.startswith(f"# {int(record.name[:4])}. "), record.name
        parts = re.findall(r"^\*\*(.+?)\*\*", text, re.MULTILINE)[:4]
        assert parts == ["Question.", "Choice.", "Cost.", "What would change our mind."], record.name
    numbers = [int(record.name[:4]) for record in RECORDS]
    assert numbers == list(range(1, len(numbers) + 1))
    index = read(DOCS / "decisions" / "README.md")
    assert [record.name for record in RECORDS if record.name not in index] == []


def test_the_changelog_has_a_section_for_this_version() -> None:
    version = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]["version"]
    assert f"## {version}" in read(ROOT / "CHANGELOG.md")


def examples(language: str) -> list[str]:
    pages = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
    fenced = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [block for page in pages for block in fenced.findall(read(page))]


def test_every_graph_in_the_docs_is_valid_and_can_be_run() -> None:
    for example in examples("yaml"):
        whole = example if re.search("^tasks:", example, re.MULTILINE) else f"tasks:\n{example}"
        document = read_document(whole.encode(), "example.yaml")
        found = validate(document)
        assert found.faults == (), example


def test_every_catalogue_in_the_docs_is_valid() -> None:
    for example in examples("yaml catalogue"):
        reading = read_documents([one for _, one in read_document_files(example.encode(), "example.yaml")])
        assert reading.faults == (), example
        assert plan(reading.entries, Facts({}), Rights()).faults == (), example


def test_every_python_example_in_the_docs_runs() -> None:
    for example in examples("python"):
        done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{example}\n{done.stderr}"


def test_every_command_option_and_exit_code_is_in_the_page_of_commands() -> None:
    page = read(DOCS / "commands.md")
    for command, entry in COMMANDS.items():
        assert f"`taskyard {command}" in page
        names = [one for param in entry.load().params for one in (*param.opts, *param.secondary_opts)]
        options = [one for one in names if one.startswith("-")]
        assert [one for one in options if not re.search(rf"^\| `.*{one}\b", page, re.MULTILINE)] == [], command
    assert [code for code in Exit if not re.search(rf"^\| {code.value} \| .+ \|$", page, re.MULTILINE)] == []


def test_the_page_of_reasons_has_every_reason_in_the_order_of_the_code() -> None:
    page = read(DOCS / "why.md")
    assert re.findall(r"^\| `([a-z_]+)` \| [a-z, ]+ \| .+ \|$", page, re.MULTILINE) == [*states.Reason]
