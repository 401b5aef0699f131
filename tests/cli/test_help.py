"""Help: every command is in its group, with its options and with examples that can be parsed."""

import re
import shlex

import click
import pytest

from taskyard.cli import main
from taskyard.cli.exit_codes import Exit
from taskyard.cli.main import COMMANDS, PROGRAM
from taskyard.cli.options import WIDTH, Context


def lines_of(example: str) -> list[str]:
    """Extract the command lines of examples, without the comments after two spaces."""
    line = re.split(r"\s{2,}", example.strip())[0]
    inner = re.findall(r"\$\((taskyard [^)]*)\)", line)
    outer = re.sub(r"\$\([^)]*\)", "ID", line)
    parts = [part.strip() for part in re.split(r"[|<>]", outer)]
    return [*inner, *(re.sub(r"^(\w+=\S+ )+", "", part) for part in parts if re.match(r"(\w+=\S+ )*taskyard ", part))]


def examples() -> list[str]:
    texts = [main.EXAMPLES, *(one.load().examples for one in COMMANDS.values())]
    return sorted({line for text in texts for one in text.splitlines() for line in lines_of(one)})


def parsed(words: list[str]) -> click.Context:
    """Parse a command line as the program does."""
    name, command, rest = PROGRAM.resolve_command(Context(PROGRAM), words)
    assert name is not None
    assert command is not None
    return command.make_context(name, rest)


def test_every_example_is_a_command_line() -> None:
    for line in examples():
        parsed(shlex.split(line)[1:])


def test_every_command_has_an_example_of_itself() -> None:
    for name, entry in COMMANDS.items():
        own = [line for one in entry.load().examples.splitlines() for line in lines_of(one)]
        found = {parsed(shlex.split(line)[1:]).info_name for line in own}
        assert {name, f"{name} list"} & found, name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_lists_all_it_takes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(None, [*name.split(), "--help"]) == Exit.OK  # type: ignore[arg-type]
    said, complained = capsys.readouterr()
    assert complained == ""
    for param in COMMANDS[name].load().params:
        names = (*param.opts, *param.secondary_opts) if isinstance(param, click.Option) else (param.metavar or "",)
        assert [one for one in names if one not in said] == []
        assert getattr(param, "help", None), f"{param.name} is not explained"
    assert said.startswith(f"Usage: taskyard {name}")
    assert "\nExamples:\n" in said
    assert max(map(len, said.splitlines())) <= WIDTH


def test_help_of_the_program_names_every_command_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(None, []) == Exit.OK  # type: ignore[arg-type]
    said = capsys.readouterr().out
    parts = {part.partition(":")[0]: part for part in said.split("\n\n")}
    for name in main.first_words():
        assert f"\n  {name} " in parts[COMMANDS[name].group]
    assert max(map(len, said.splitlines())) <= WIDTH


def test_help_can_be_asked_for_as_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(None, ["help", "bots", "set"]) == Exit.OK  # type: ignore[arg-type]
    assert capsys.readouterr().out.startswith("Usage: taskyard bots set")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("sumbit x", 'unknown command "sumbit". Did you mean "submit"?'),
        ("bots sett x", 'unknown command "bots sett". Did you mean "bots set"?'),
        ("graphs --sate running", 'unknown option "--sate". Did you mean "--state"?'),
        ("graphs --state runing", '--state: unknown value "runing". Did you mean "running"?'),
        ("tasks 1 --state sucessful", 'Did you mean "successful"?'),
        ("bots --state ded", 'Did you mean "dead"?'),
        ("graphs -o jsn", 'unknown value "jsn". Did you mean "json"?'),
        ("help sumbit", 'Did you mean "submit"?'),
        ("completion tcsh", "There are: bash, zsh, fish"),
        ("audit more", 'unexpected argument "more"'),
        ("graphs --limit", "option '--limit' requires an argument"),
        ("graphs --limit=ten", "--limit: 'ten' is not a whole number"),
        ("graphs --limit 0", "--limit: must be from 1 to 1000000"),
        ("logs x --attempt 0", "--attempt: must be at least 1"),
        ("graphs --since soon", "--since: 'soon' is not a duration such as 90s, 5m, 1h30m or 2d"),
        ("serve --lease 1s", "--lease: must be from 2s to 1h"),
        ("graphs --out json", 'Did you mean "--output"?'),
        ("run", "missing argument FILE"),
        ("cancel", "missing argument ID"),
        ("token create", "missing option --name"),
    ],
)
def test_a_wrong_command_line_is_answered_with_what_was_meant(
    line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.call(None, shlex.split(line)) == Exit.USAGE  # type: ignore[arg-type]
    said, complained = capsys.readouterr()
    assert said == ""
    assert told in complained
    assert '--help"' in complained


def test_a_mistyped_word_cannot_act_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for line in (
        ["\x1b]0;owned\x07x"],
        ["graphs", "--\x1b[2J"],
        ["graphs", "\x1b[2J"],
        ["graphs", "--limit", "\x1b[2J"],
    ):
        assert main.call(None, line) == Exit.USAGE  # type: ignore[arg-type]
        assert "\x1b" not in capsys.readouterr().err


def test_options_and_arguments_come_in_any_order() -> None:
    one, other = (parsed(["logs", *words]) for words in (["-f", "T", "--attempt=2"], ["--attempt", "2", "T", "-f"]))
    assert one.params == other.params
    assert parsed(["cancel", "a", "--subtree", "b"]).params["ids"] == ("a", "b")
    assert parsed(["logs", "--", "-f"]).params["id"] == "-f"


def test_a_duration_is_written_as_in_documents() -> None:
    for written, ms in {"90s": 90_000, "1h30m": 5_400_000, "500ms": 500, "2d": 172_800_000, "90": 90_000}.items():
        assert parsed(["graphs", "--since", written]).params["since"] == ms, written
