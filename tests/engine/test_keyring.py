"""The keys of secrets: their file, what they seal, and what cannot be opened."""

import stat
from pathlib import Path

import pytest

from taskyard.core.structs import struct_replace
from taskyard.engine.keyring import FILE_NAME, Changed, Keyring, NoKey, add_key, keyed_hash, keyring_of

VALUE = b"\x00a value\xff"


def test_a_key_file_is_for_its_owner_and_gets_new_keys_first(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    first, second = add_key(file), add_key(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    ring = Keyring(file)
    assert ring.ids() == {first, second}
    assert ring.first() == second
    assert [one.name for one in tmp_path.iterdir()] == ["keys"], "nothing else is left"


def test_what_is_sealed_is_opened_by_the_same_key_for_the_same_thing_only(tmp_path: Path) -> None:
    old = add_key(tmp_path / "keys")
    ring = Keyring(tmp_path / "keys")
    sealed = ring.seal(old, VALUE, "secret 1 lab deploy")
    assert VALUE not in sealed.body + sealed.wrapped_key
    assert ring.open(sealed, "secret 1 lab deploy") == VALUE
    other = ring.seal(old, VALUE, "secret 1 lab other")
    assert other.body != sealed.body
    for wrong in (
        (sealed, "secret 2 lab deploy"),
        (struct_replace(sealed, body=other.body), "secret 1 lab deploy"),
        (struct_replace(sealed, wrapped_key=other.wrapped_key), "secret 1 lab deploy"),
        (struct_replace(sealed, body=sealed.body[:-1] + b"x"), "secret 1 lab deploy"),
        (struct_replace(sealed, body=b""), "secret 1 lab deploy"),
    ):
        with pytest.raises(Changed, match="was changed"):
            ring.open(*wrong)


def test_a_new_key_opens_nothing_and_the_old_one_still_does(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    old = add_key(file)
    ring = Keyring(file)
    sealed = ring.seal(old, VALUE, "it")
    lines = file.read_text()
    new = add_key(file)
    assert ring.open(sealed, "it") == VALUE, "the file is read again when it has changed"
    own = ring.unwrap(old, sealed.wrapped_key, "it")
    again = struct_replace(sealed, key_id=new, wrapped_key=ring.wrap(new, own, "it"))
    assert ring.open(again, "it") == VALUE
    file.write_text(lines)
    with pytest.raises(NoKey, match=f"the key {new} is not in {file}"):
        ring.open(again, "it")


def test_a_key_file_that_cannot_be_used_says_why_and_gives_no_key(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    ring = Keyring(file)
    with pytest.raises(NoKey, match=f"there is no {file}"):
        ring.first()
    add_key(file)
    file.chmod(0o644)
    with pytest.raises(NoKey, match=f"run `chmod 600 {file}`"):
        ring.first()
    assert ring.ids() == frozenset()
    file.chmod(0o600)
    assert len(ring.ids()) == 1
    for text, why in (
        ("not a key\n", "line 1"),
        ("# none\n", "has no key"),
        ("AAAA\n", "is no key"),
        ("\xff", "line 1"),
    ):
        file.write_text(text)
        with pytest.raises(NoKey, match=why):
            ring.first()
        assert "AAAA" not in ring.trouble(), "what may be a part of a key is not repeated"
    with pytest.raises(NoKey, match="--secrets-key-file"):
        Keyring().first()


def test_a_server_makes_a_key_file_only_beside_a_file_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'taskyard.db'}"
    ring = keyring_of(url, None)
    assert ring.ids() == frozenset()
    assert not (tmp_path / FILE_NAME).exists(), "only a first secret needs one"
    assert ring.make_first() in ring.ids()
    assert ring.make_first() == ring.first()
    assert keyring_of("postgresql://db/yard", None).file is None
    with pytest.raises(NoKey, match="make it with: taskyard secret key"):
        keyring_of(url, tmp_path / "other").make_first()


def test_a_keyed_hash_differs_with_each_part_and_key() -> None:
    assert keyed_hash(b"k" * 32, b"ab", b"c") != keyed_hash(b"k" * 32, b"a", b"bc")
    assert keyed_hash(b"k" * 32, b"a") != keyed_hash(b"l" * 32, b"a")
    assert keyed_hash(b"k" * 32, b"a") == keyed_hash(b"k" * 32, b"a")
