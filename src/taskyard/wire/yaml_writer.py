"""Writes JSON's values as YAML that `yaml_reader` reads back as the same values.

Text that the reader would take for a number or a word is quoted, and nothing is written as an alias.
"""

from collections.abc import Iterable
from typing import Any, Final

import yaml

from taskyard.wire.yaml_reader import is_plain_text

#: The emitter in C is ten times faster; both write the same.
_DUMPER: type[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_STRING: Final = "tag:yaml.org,2002:str"
#: Long lines stay one line: a folded text is hard to compare.
_WIDTH: Final = 1_000_000


class _Dumper(_DUMPER):  # type: ignore[misc]
    """Writes text so that it is read as text again."""

    def ignore_aliases(self, _: object) -> bool:
        return True


def _text(dumper: Any, text: str) -> Any:
    is_block = "\n" in text and not any(letter in text for letter in "\r\x85\u2028\u2029\ufeff")
    style = "|" if is_block else None if is_plain_text(text) else "'"
    return dumper.represent_scalar(_STRING, text, style=style)


_Dumper.add_representer(str, _text)


def write(documents: Iterable[object]) -> str:
    """Write documents, with `---` between them; keys keep their order."""
    return str(
        yaml.dump_all(
            documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=_WIDTH
        )
    )
