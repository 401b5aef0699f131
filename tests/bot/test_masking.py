"""Masks hide secrets in whatever form programs print them by accident, wherever the output is cut."""

import base64
import json
import subprocess
from collections.abc import Callable
from random import Random
from urllib.parse import quote, quote_plus, urlencode

from taskyard.bot.masking import MASK, MASKED_MIN, Masker
from tests.each_row import each_row

SECRET = b"s3cr/t+v\xc3\xa4lue 'q' \"d\" & <x>"
KEY = (
    b"-----BEGIN KEY-----\n"
    + b"\n".join(bytes([65 + n]) * 40 + b"/+=%d" % n for n in range(8))
    + b"\n-----END KEY-----\n"
)

FORMS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("as it is", lambda value: value),
    ("inside a word", lambda value: b"x" + value + b"y"),
    ("base64", base64.b64encode),
    ("base64 for addresses", base64.urlsafe_b64encode),
    ("base64 after one byte", lambda value: base64.b64encode(b"u" + value)),
    ("base64 after two bytes, and more", lambda value: base64.b64encode(b"u:" + value + b"@host")),
    ("base64 after a name", lambda value: base64.urlsafe_b64encode(b"x-access-token:" + value + b"\n")),
    ("base64 in lines", base64.encodebytes),
    ("URL-encoded", lambda value: quote(value, safe="").encode()),
    ("URL-encoded with slashes", lambda value: quote(value).encode()),
    ("URL-encoded with small digits", lambda value: quote(value, safe="").replace("%2F", "%2f").lower().encode()),
    ("as a form", lambda value: quote_plus(value).encode()),
    ("as a query", lambda value: urlencode({"token": value}).encode()),
    ("every byte URL-encoded", lambda value: "".join(f"%{byte:02X}" for byte in value).encode()),
    ("JSON", lambda value: json.dumps({"token": value.decode()}).encode()),
    ("JSON with all letters", lambda value: json.dumps([value.decode()], ensure_ascii=False).encode()),
    ("Python", lambda value: repr(value.decode()).encode()),
    ("hexadecimal", lambda value: value.hex().encode()),
    ("large hexadecimal", lambda value: value.hex().upper().encode()),
]


def leaks(output: bytes, value: bytes, shortest: int = 8) -> list[bytes]:
    """The parts of a secret, as they are or in base64, that are still in some output."""
    parts = [value[at : at + shortest] for at in range(len(value) - shortest + 1)]
    return [part for part in parts if part in output]


@each_row(("name", "form"), FORMS, ids=[name for name, _ in FORMS])
def test_a_secret_is_masked_in_every_form_wherever_it_is_cut(name: str, form: Callable[[bytes], bytes]) -> None:
    for value in (SECRET, b"hunter2hunter2-%41"):
        lower = name == "URL-encoded with small digits"
        value = value.lower() if lower else value  # noqa: PLW2901 - this form has no capital letters
        printed = b"before " + form(value) + b" after"
        chance = Random(name)
        for _ in range(20):
            masker, output, at = Masker([value]), b"", 0
            while at < len(printed):
                step = chance.randint(1, 12)
                output += masker.add(printed[at : at + step])
                at += step
            output += masker.finish()
            assert MASK in output, (name, output)
            around = 20 if name == "base64 after a name" else 4
            assert leaks(output, form(value)[around:-10], 12) == [], (name, output)
            assert output.startswith(b"before ")
            assert output.endswith(b" after")


def test_a_multi_line_secret_is_masked_line_by_line_and_as_other_programs_print_it() -> None:
    masker = Masker([KEY])
    for printed in (KEY, KEY.replace(b"\n", b"\r\n"), b"\n".join(b"  " + line for line in KEY.splitlines())):
        assert leaks(masker.mask(printed), KEY) == []
    encoded = subprocess.run(["base64"], input=KEY, capture_output=True, check=True).stdout
    assert encoded.count(b"\n") > 2, "the program wraps its lines"
    masked = masker.mask(encoded)
    assert len(masked) < 12, masked
    assert masker.mask(json.dumps(KEY.decode()).encode()) == b'"***\\n"'


def test_output_without_a_secret_is_not_changed_and_not_delayed() -> None:
    masker = Masker([SECRET])
    chance = Random(7)
    text = bytes(chance.choice(b"abc \n") for _ in range(5_000))
    assert masker.add(text) == text
    assert masker.finish() == b""


def test_what_may_be_the_beginning_of_a_secret_is_kept_only_until_it_is_known() -> None:
    masker = Masker([b"correct horse"])
    assert masker.add(b"it is corr") == b"it is "
    assert masker.add(b"ect") == b""
    assert masker.add(b"ly said") == b"correctly said"
    assert masker.add(b"a correct hors") == b"a "
    assert masker.finish() == b"correct hors"


def test_repetitive_secrets_and_output_are_masked() -> None:
    masker = Masker([b"a" * 20_000, b"ab" * 40])
    output = b"".join(masker.add(b"a" * 7_001) for _ in range(6)) + masker.finish()
    assert output.count(MASK) == 2
    assert masker.mask(b"ab" * 41) == MASK + b"ab"


def test_short_text_is_no_secret_to_a_mask() -> None:
    assert not Masker([b"1234567", b"", b"\n\n\n"])
    assert Masker([b"x" * MASKED_MIN])
    assert Masker([b"1234567"]).mask(b"1234567") == b"1234567"
