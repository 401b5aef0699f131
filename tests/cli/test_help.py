"""Help: every command is told by purpose, with what it takes and with examples that are command lines indeed."""

import re
import shlex

import pytest

from taskyard.cli import app, grammar, helping, parsing, table
from taskyard.cli.exits import Exit

COMMANDS = list(table.COMMANDS.values())


def named(command: table.Command) -> str:
    return command.name


def lines_of(example: str) -> list[str]:
    """Take the command lines out of an example: what is run, without what is said about it behind two spaces."""
    line = re.split(r"\s{2,}", example.strip())[0]
    inner = re.findall(r"\$\((taskyard [^)]*)\)", line)
    outer = re.sub(r"\$\([^)]*\)", "ID", line)
    parts = [part.strip() for part in re.split(r"[|<>]", outer)]
    return [*inner, *(re.sub(r"^(\w+=\S+ )+", "", part) for part in parts if re.match(r"(\w+=\S+ )*taskyard ", part))]


def examples() -> list[str]:
    texts = [helping.EXAMPLES, *(command.shown() for command in COMMANDS)]
    return sorted({line for text in texts for one in text.splitlines() for line in lines_of(one)})


@pytest.mark.parametrize("line", examples())
def test_every_example_is_a_command_line(line: str) -> None:
    name, rest = app._found(shlex.split(line)[1:])
    parsing.parse(f"taskyard {name}", table.COMMANDS[name].syntax(), rest)


@pytest.mark.parametrize("command", COMMANDS, ids=named)
def test_every_command_has_an_example_of_itself(command: table.Command) -> None:
    own = [line for one in command.shown().splitlines() for line in lines_of(one)]
    found = {app._found(shlex.split(line)[1:])[0] for line in own}
    assert {command.name, f"{command.name} list"} & found


@pytest.mark.parametrize("command", COMMANDS, ids=named)
def test_help_of_a_command_tells_all_it_takes(command: table.Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.call(None, [*command.name.split(), "--help"]) == Exit.OK  # type: ignore[arg-type]
    said, complained = capsys.readouterr()
    assert complained == ""
    for slot in command.syntax().slots:
        assert all(name in said for name in (*slot.names, slot.off or "", slot.stands if not slot.is_flag else ""))
    assert said.startswith(f"Usage: taskyard {command.name}")
    assert "\nExamples:\n" in said
    assert max(map(len, said.splitlines())) <= helping.WIDTH


@pytest.mark.parametrize("command", COMMANDS, ids=named)
def test_everything_that_a_command_takes_is_explained(command: table.Command) -> None:
    assert [slot.spelled for slot in command.syntax().slots if not slot.about.help] == []


def test_help_of_the_program_names_every_command_under_its_purpose() -> None:
    told = "\n".join(helping.of_program())
    parts = {part.partition(":")[0]: part for part in told.split("\n\n")}
    for name in table.first_words():
        assert f"\n  {name} " in parts[table.COMMANDS[name].purpose]
    assert max(map(len, told.splitlines())) <= helping.WIDTH


def test_help_can_be_asked_for_as_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.call(None, ["help", "bots", "set"]) == Exit.OK  # type: ignore[arg-type]
    assert capsys.readouterr().out.startswith("Usage: taskyard bots set")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("sumbit x", 'unknown command "sumbit". Did you mean "submit"?'),
        ("bots sett x", 'unknown command below "bots" "sett". Did you mean "set"?'),
        ("graphs --sate running", 'unknown option "--sate". Did you mean "--state"?'),
        ("graphs --state runing", '--state: unknown value "runing". Did you mean "running"?'),
        ("tasks 1 --state sucessful", 'Did you mean "successful"?'),
        ("bots --state ded", 'Did you mean "dead"?'),
        ("graphs -o jsn", 'unknown value "jsn". Did you mean "json"?'),
        ("help sumbit", 'Did you mean "submit"?'),
        ("completion tcsh", "There are: bash, zsh, fish."),
        ("graphs more", 'there is no place for "more"'),
        ("graphs --limit", "expected one argument"),
        ("graphs --limit=ten", '"ten" is no number'),
        ("graphs --limit 0", "Must be >= 1."),
        ("graphs --out json", 'Did you mean "--output"?'),
        ("run", "FILE is missing"),
        ("cancel", "ID is missing"),
        ("token create", "--name is missing"),
    ],
)
def test_what_cannot_be_understood_is_told_with_what_was_meant(
    line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.call(None, shlex.split(line)) == Exit.USAGE  # type: ignore[arg-type]
    said, complained = capsys.readouterr()
    assert said == ""
    assert told in complained
    assert '--help" has examples.' in complained


def test_a_mistyped_word_that_is_hostile_is_told_harmlessly(capsys: pytest.CaptureFixture[str]) -> None:
    for line in (
        ["\x1b]0;owned\x07x"],
        ["graphs", "--\x1b[2J"],
        ["graphs", "\x1b[2J"],
        ["graphs", "--limit", "\x1b[2J"],
    ):
        assert app.call(None, line) == Exit.USAGE  # type: ignore[arg-type]
        assert "\x1b" not in capsys.readouterr().err


def test_options_and_arguments_come_in_any_order() -> None:
    syntax = table.COMMANDS["logs"].syntax()
    values = [
        parsing.parse("x", syntax, words) for words in (["-f", "T", "--attempt=2"], ["--attempt", "2", "T", "-f"])
    ]
    assert values[0] == values[1]
    assert parsing.parse("x", table.COMMANDS["cancel"].syntax(), ["a", "--subtree", "b"])["ids", ""] == ["a", "b"]
    assert parsing.parse("x", syntax, ["--", "-f"])["id", ""] == "-f"


def test_a_signature_that_no_command_line_has_is_a_bug() -> None:
    def command(*, when: complex) -> None: ...

    with pytest.raises(AssertionError, match="a command line has no"):
        grammar.read(command)
