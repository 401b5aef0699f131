"""The sources of the reference page are complete: exit codes, environment variables, keys of files."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from taskyard.cli import main, output, profiles
from taskyard.cli.exit_codes import MEANINGS, Exit
from taskyard.cli.main import COMMANDS, GROUPS
from taskyard.cli.profiles import Profile
from taskyard.sdk import profiles as sdk_profiles
from tests.each_row import each_row

CLI = Path(output.__file__).parent
#: Commands that only do what one of their subcommands does have no section of their own.
SECTIONS = [name for name in COMMANDS if f"{name} list" not in COMMANDS]
PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


def test_every_exit_code_has_its_meaning_and_is_in_the_help() -> None:
    assert set(MEANINGS) == set(Exit)
    assert {int(code) for code in re.findall(r"\b(\d+) ", main.EXIT_CODES)} == {int(code) for code in Exit}


def names_read(path: Path) -> set[str]:
    """Find the environment variables that a module reads."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        is_get = called.endswith("environ.get") or called in ("folder", "user_folder")
        named = node.args[0] if is_get and isinstance(node, ast.Call) and node.args else None
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
            named = node.slice
        if isinstance(named, ast.Constant):
            found.add(str(named.value))
        elif isinstance(named, ast.Name):
            found.add(getattr(sdk_profiles, named.id, named.id))
    return found


def test_every_variable_that_is_read_is_listed_and_the_other_way_round() -> None:
    read = {name for path in (*CLI.rglob("*.py"), Path(sdk_profiles.__file__)) for name in names_read(path)}
    # One is looked up by whatever name it is given.
    assert read - {"variable", "COMPLETE_VARIABLE"} == set(profiles.VARIABLES)


def test_a_profile_has_the_keys_that_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    profiles.save(Profile("all", "http://all", "token", by_up=True, ca_file="ca.pem"), use=True)
    written = tomllib.loads(profiles.path().read_text())
    assert set(written) == set(profiles.KEYS)
    assert set(written["profiles"]["all"]) == set(profiles.PROFILE_KEYS)
    assert set(profiles.PROJECT_KEYS) == {"url", "profile"}


@each_row("name", SECTIONS)
def test_every_command_has_its_section_with_what_it_takes(name: str) -> None:
    part = f"### `taskyard {name}`\n"
    section = PAGE.read_text(encoding="utf-8").partition(part)[2].partition("\n### ")[0]
    assert f"<!-- generated: command-{name.replace(' ', '-')} -->\n" in section


@pytest.mark.parametrize("group", GROUPS)
def test_the_page_has_the_groups_of_the_help(group: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    section = page.partition(f"\n## {group}\n")[2].partition("\n## ")[0]
    listed = re.findall("^### `taskyard ([a-z -]+)`$", section, re.MULTILINE)
    own = [name for name, one in COMMANDS.items() if one.group == group]
    assert set(listed) == {name for name in own if name in SECTIONS}
