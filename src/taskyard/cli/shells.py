"""Completion scripts for bash, zsh and fish, written from the table of commands. They hold every command and option."""

from collections.abc import Callable, Iterator
from typing import Final

from taskyard.cli import table
from taskyard.cli.grammar import Slot

#: A value of this kind is a path.
FILE: Final = "file"


def bash() -> str:
    """Write the script for bash; it needs nothing but bash."""
    return "\n".join([_BASH_HEAD, *_bash_cases(), _BASH_TAIL])


def zsh() -> str:
    """Write the script for zsh."""
    return "\n".join([_ZSH_HEAD, *_zsh_cases(), _ZSH_TAIL])


def fish() -> str:
    """Write the script for fish."""
    return "\n".join([_FISH_HEAD, *_fish_lines(), ""])


SCRIPTS: Final[dict[str, Callable[[], str]]] = {"bash": bash, "zsh": zsh, "fish": fish}


def _slots(name: str) -> tuple[Slot, ...]:
    return table.COMMANDS[name].syntax().slots


def _names(slot: Slot) -> list[str]:
    return [*slot.names, *([slot.off] if slot.off else [])]


def _kind(slot: Slot) -> str:
    return FILE if slot.kind.__name__ == "Path" else slot.about.completes


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# bash

_BASH_HEAD: Final = """\
# Completion of taskyard for bash. Try it: eval "$(taskyard completion bash)"
_taskyard_offer() {
    local IFS=$'\\n' line
    while IFS= read -r line; do
        COMPREPLY+=("$(printf '%q' "${line%%$'\\t'*}")")
    done < <(taskyard __complete "$1" "$2" 2>/dev/null)
    [[ ${COMPREPLY[0]-} == */ ]] && compopt -o nospace
}
_taskyard_files() {
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$1")
}
_taskyard_words() {
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2")
}
_taskyard() {
    COMPREPLY=()
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} first=2
    # `--state=run` comes in three words.
    if [[ $cur == '=' ]]; then
        cur=
    elif [[ $prev == '=' ]]; then
        prev=${COMP_WORDS[COMP_CWORD-2]}
    fi"""
_BASH_TAIL: Final = """\
    esac
}
complete -F _taskyard taskyard
"""


def _bash_cases() -> Iterator[str]:
    two = "|".join(f"'{name}'" for name in table.COMMANDS if " " in name)
    yield "    if (( COMP_CWORD > 2 )); then"
    yield f'        case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in {two})'
    yield '            command="${COMP_WORDS[1]} ${COMP_WORDS[2]}" first=3 ;;'
    yield "        esac"
    yield "    fi"
    yield f'    if (( COMP_CWORD == 1 )); then _taskyard_words {_quoted(_first_words())} "$cur"; return; fi'
    yield '    case "$command" in'
    for name in table.COMMANDS:
        yield f"    '{name}')"
        yield '        case "$prev" in'
        for slot in _slots(name):
            if slot.names and not slot.is_flag:
                yield f"        {'|'.join(slot.names)}) {_bash_values(slot)} return ;;"
        yield "        esac"
        options = " ".join([*(one for slot in _slots(name) for one in _names(slot)), "--help"])
        yield f"        if [[ $cur == -* ]]; then _taskyard_words '{options}' \"$cur\"; return; fi"
        yield from _bash_arguments(name)
        yield "        ;;"


def _first_words() -> str:
    return " ".join([*table.first_words(), "--help", "--version"])


def _bash_arguments(name: str) -> Iterator[str]:
    if below := table.below(name):
        yield f"        if (( COMP_CWORD == 2 )); then _taskyard_words '{' '.join(below)}' \"$cur\"; return; fi"
    arguments = [slot for slot in _slots(name) if not slot.names]
    for at, slot in enumerate(arguments):
        test = "" if slot.many else f"(( COMP_CWORD == first + {at} )) && "
        if values := _bash_values(slot):
            yield f"        {test}{{ {values} }}"


def _bash_values(slot: Slot) -> str:
    if slot.choices:
        return f"_taskyard_words '{' '.join(slot.choices)}' \"$cur\";"
    if _kind(slot) == FILE:
        return '_taskyard_files "$cur";'
    return f'_taskyard_offer {_kind(slot)} "$cur";' if _kind(slot) else ""


# zsh

_ZSH_HEAD: Final = """\
#compdef taskyard
# Completion of taskyard for zsh. Keep it as _taskyard in a folder of $fpath.
_taskyard_offer() {
    local -a found
    found=(${(f)"$(taskyard __complete $1 "$PREFIX" 2>/dev/null)"})
    found=(${${found//:/\\\\:}//$'\\t'/:})
    _describe -t values $1 found
}
_taskyard() {
    local -a commands
    local command=$words[2]"""
_ZSH_TAIL: Final = """\
    esac
}
if [[ $funcstack[1] == _taskyard ]]; then _taskyard "$@"; else compdef _taskyard taskyard; fi
"""


def _zsh_cases() -> Iterator[str]:
    yield "    if (( CURRENT == 2 )); then"
    yield from _zsh_described(table.first_words(), "", " " * 8)
    yield "        return"
    yield "    fi"
    yield "    shift words; (( CURRENT-- ))"
    for name in table.first_words():
        if below := table.below(name):
            yield f"    if [[ $command == {name} ]]; then"
            yield f"        if (( CURRENT > 2 )) && [[ $words[2] == ({'|'.join(below)}) ]]; then"
            yield '            command="$command $words[2]"; shift words; (( CURRENT-- ))'
            yield "        elif (( CURRENT == 2 )); then"
            yield from _zsh_described(below, f"{name} ", " " * 12)
            yield "        fi"
            yield "    fi"
    yield '    case "$command" in'
    for name in table.COMMANDS:
        specs = [_quoted(one) for slot in _slots(name) for one in _zsh_specs(slot)]
        yield f"    '{name}') _arguments -s {' '.join([*specs, _quoted('--help[Show help.]')])} ;;"


def _zsh_described(names: list[str], above: str, indent: str) -> Iterator[str]:
    told = (f"{name}:{_plain(table.COMMANDS[above + name].syntax().summary)}" for name in names)
    yield f"{indent}commands=({' '.join(map(_quoted, told))})"
    yield f"{indent}_describe -t commands command commands"


def _zsh_specs(slot: Slot) -> Iterator[str]:
    values = f":{slot.stands}:{_zsh_values(slot)}"
    if not slot.names:
        yield f"*{values}" if slot.many else f"1{values}" if slot.required else f"::{slot.stands}:{_zsh_values(slot)}"
        return
    for name in _names(slot):
        again = "*" if slot.many else ""
        yield f"{again}{name}[{_plain(slot.about.help)}]{'' if slot.is_flag else values}"


def _zsh_values(slot: Slot) -> str:
    if slot.choices:
        return f"({' '.join(slot.choices)})"
    # A word of _arguments' own is put behind the first of ours, unless a space comes before it.
    return "_files" if _kind(slot) == FILE else f" _taskyard_offer {_kind(slot)}" if _kind(slot) else ""


def _plain(text: str) -> str:
    """Leave out what means something between brackets or colons."""
    return text.replace("[", "(").replace("]", ")").replace(":", "\\:")


# fish

_FISH_HEAD: Final = """\
# Completion of taskyard for fish. Keep it as ~/.config/fish/completions/taskyard.fish
function __taskyard_offer
    taskyard __complete $argv[1] (commandline -ct) 2>/dev/null
end
function __taskyard_words
    set -l words (commandline -opc)
    string join -- ' ' $words[2..]
end
function __taskyard_first
    test -z "$(__taskyard_words)"
end
function __taskyard_in
    string match -qr -- "^$argv[1]( |\\$)" "$(__taskyard_words)"
end
function __taskyard_at
    test "$(__taskyard_words)" = "$argv[1]"
end
complete -c taskyard -f"""


def _fish_lines() -> Iterator[str]:
    for name, command in table.COMMANDS.items():
        above, _, last = name.rpartition(" ")
        where = f"-n {_quoted(f'__taskyard_at {above}')}" if above else "-n __taskyard_first"
        yield f"complete -c taskyard {where} -a {last} -d {_quoted(command.syntax().summary)}"
    for name in table.COMMANDS:
        # A command is not the ones below it.
        others = f"(?! ({'|'.join(table.below(name))})( |$))" if table.below(name) else ""
        inside = _quoted(f"__taskyard_in '{name}{others}'")
        for slot in _slots(name):
            for names, flag in _fish_names(slot):
                yield f"complete -c taskyard -n {inside}{names} -d {_quoted(slot.about.help)}{flag}"
            if not slot.names and _fish_values(slot):
                yield f"complete -c taskyard -n {inside}{_fish_values(slot)}"


def _fish_names(slot: Slot) -> Iterator[tuple[str, str]]:
    if not slot.names:
        return
    spelled = (f" -l {one[2:]}" if one.startswith("--") else f" -s {one[1:]}" for one in slot.names)
    yield "".join(spelled), "" if slot.is_flag else f"{' -r' if _kind(slot) == FILE else ' -x'}{_fish_values(slot)}"
    if slot.off:
        yield f" -l {slot.off[2:]}", ""


def _fish_values(slot: Slot) -> str:
    if slot.choices:
        return f" -a {_quoted(' '.join(slot.choices))}"
    return " -F" if _kind(slot) == FILE else f" -a '(__taskyard_offer {_kind(slot)})'" if _kind(slot) else ""
