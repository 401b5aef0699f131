"""What a command takes, read from the signature of its function: arguments, options, and what each is for.

A positional-only parameter is an argument, a keyword-only one is an option, a NamedTuple is the options of its fields.
(NamedTuples here and in the commands: a dataclass takes eight times as long to make, and every call makes them anew.)
Parsing, help, completion and the reference in the docs are all made from what is read here, so they cannot disagree.
Nothing is parsed here.
"""

import inspect
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

#: A parameter of this name is not for people: the work that a command has done for it.
INJECTED: Final = "work"


class Parameter(NamedTuple):
    """What a signature cannot say about one of its parameters, in `Annotated[int, Parameter(...)]`."""

    help: str = ""
    name: str | Sequence[str] = ()  # of an option: its names; of an argument: what stands for it
    validator: "Callable[[object, Any], None] | None" = None  # raises ValueError
    negative: str | None = None  # of a flag: what turns it off; "": nothing does; None: `--no-NAME`
    group: str = "Options"
    completes: str = ""  # what kind of value it is, for a Tab key: graph, task, file, ...


class Number(NamedTuple):
    """Refuses numbers outside of its bounds."""

    gte: int | None = None
    lte: int | None = None

    def __call__(self, _: object, number: int | None) -> None:
        if number is not None and self.gte is not None and number < self.gte:
            raise ValueError(f"Must be >= {self.gte}.")
        if number is not None and self.lte is not None and number > self.lte:
            raise ValueError(f"Must be <= {self.lte}.")


class Slot(NamedTuple):
    """One thing that a command takes."""

    key: tuple[str, str]  # the parameter; and the field, if that is a group
    names: tuple[str, ...]  # of an option, the long one first; an argument has none
    off: str | None  # the option that turns a flag off
    stands: str  # what stands for a value in usage and help
    kind: type  # bool, int, str or Path
    choices: tuple[str, ...]
    many: bool  # it can be given more than once
    required: bool
    default: Any
    about: Parameter

    @property
    def is_flag(self) -> bool:
        """Whether it is said or not, without a value."""
        return self.kind is bool

    @property
    def spelled(self) -> str:
        """How it is called in a message."""
        return "/".join(self.names) if self.names else self.stands


class Syntax(NamedTuple):
    """Everything that one command takes, and what its docstring says."""

    summary: str
    description: str
    slots: tuple[Slot, ...]
    groups: "dict[str, type]"  # parameters that are groups of options
    spread: str  # the parameter that takes any number of arguments; or ""
    injected: bool

    @property
    def arguments(self) -> tuple[Slot, ...]:
        return tuple(slot for slot in self.slots if not slot.names)

    @property
    def options(self) -> tuple[Slot, ...]:
        return tuple(slot for slot in self.slots if slot.names)


def read(function: Callable[..., Any]) -> Syntax:
    """Read a function's signature and docstring."""
    hints = get_type_hints(function, include_extras=True)
    slots: list[Slot] = []
    groups: dict[str, type] = {}
    spread = ""
    parameters = inspect.signature(function).parameters.values()
    for one in parameters:
        hint = hints[one.name]
        if one.name == INJECTED:
            continue
        if _is_group(hint):
            groups[one.name] = hint
            slots += _fields(one.name, hint)
            continue
        if one.kind is one.VAR_POSITIONAL:
            spread = one.name
        slots.append(_slot((one.name, ""), hint, one.default, one.kind))
    summary, _, description = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
    named = any(one.name == INJECTED for one in parameters)
    return Syntax(summary.replace("\n", " "), description, tuple(slots), groups, spread, named)


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


def _fields(parameter: str, shape: Any) -> list[Slot]:
    """Read the fields of a group: each is an option."""
    hints = get_type_hints(shape, include_extras=True)
    defaults = shape._field_defaults
    return [
        _slot((parameter, one), hints[one], defaults.get(one, inspect.Parameter.empty), inspect.Parameter.KEYWORD_ONLY)
        for one in shape._fields
    ]


def _slot(key: tuple[str, str], hint: Any, default: Any, how: "inspect._ParameterKind") -> Slot:
    plain, about = _unwrapped(hint)
    kind, choices, many = _kind(plain)
    word = (key[1] or key[0]).rstrip("_").replace("_", "-")
    is_option = how is inspect.Parameter.KEYWORD_ONLY
    given = (about.name,) if isinstance(about.name, str) else tuple(about.name)
    names = (given or (f"--{word}",)) if is_option else ()
    stands = given[0] if given and not is_option else word.upper()
    off = about.negative if about.negative is not None else f"--no-{word}"
    return Slot(
        key=key,
        names=names,
        off=(off or None) if kind is bool else None,
        stands=_STANDS.get(kind, stands) if is_option else stands,
        kind=kind,
        choices=choices,
        many=many or how is inspect.Parameter.VAR_POSITIONAL,
        required=default is inspect.Parameter.empty,
        default=None if default is inspect.Parameter.empty else default,
        about=about,
    )


_STANDS: Final[dict[type, str]] = {int: "N", Path: "PATH"}


def _unwrapped(hint: Any) -> tuple[Any, Parameter]:
    """Take `Annotated` apart; of several words about it, the outermost counts."""
    if get_origin(hint) is not Annotated:
        return hint, Parameter()
    plain, *said = get_args(hint)
    return plain, next(one for one in reversed(said) if isinstance(one, Parameter))


def _kind(hint: Any) -> tuple[type, tuple[str, ...], bool]:
    """Say what a value is: its type, the words it may be, and whether there can be several."""
    if get_origin(hint) in (Union, types.UnionType):
        return _kind(next(one for one in get_args(hint) if one is not type(None)))
    if get_origin(hint) is Literal:
        return str, get_args(hint), False
    if get_origin(hint) is list:
        kind, choices, _ = _kind(get_args(hint)[0])
        return kind, choices, True
    assert hint in (bool, int, str, Path), f"a command line has no {hint}; a group of options is a NamedTuple"
    return hint, (), False
