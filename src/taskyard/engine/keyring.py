"""The keys that encrypt secrets, in a file outside the database.

Each secret has a random key of its own, which a key of the file encrypts (envelope encryption, AES-256-GCM): a rotation
encrypts only these small keys anew. Both ciphertexts are bound to what the secret is, so that rows that are exchanged
in the database cannot be opened.

The file has one key per line, in base64. The first is the one to which a rotation changes; every key of the file opens.
The id of a key is derived from it. `cryptography` is imported when the first secret is sealed or opened.
"""

import base64
import binascii
import hashlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from taskyard.private_files import FILE_MODE, OTHERS
from taskyard.store.repo.secrets import Sealed

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
#: How many hexadecimal digits of a hash name a key.
_ID_DIGITS: Final = 12
#: A key file is small; whatever is larger is another file.
_FILE_BYTES_MAX: Final = 65_536
#: The name of the file that a server on SQLite makes beside its database.
FILE_NAME: Final = "secrets.key"
_HEAD: Final = (
    "# The keys of the secrets of a Taskyard server. Keep a copy apart from copies of the database:\n"
    "# without this file its secrets cannot be read; a person who has both files can read them.\n"
)


class NoKey(Exception):
    """A secret cannot be sealed or opened for lack of a key; the text says which, and what to do."""


class Changed(Exception):
    """What is stored is not what was sealed."""


def key_id(key: bytes) -> str:
    """Derive the id of a key."""
    return hashlib.sha256(b"taskyard key id " + key).hexdigest()[:_ID_DIGITS]


def add_key(file: Path) -> str:
    """Put a new key before the keys of a file, which is made if it does not exist; return the id of the key."""
    text = file.read_text(encoding="utf-8") if file.exists() else _HEAD
    read_keys(text, file)
    new = secrets.token_bytes(KEY_BYTES)
    lines = text.splitlines(keepends=True)
    place = next((at for at, line in enumerate(lines) if _is_key(line)), len(lines))
    lines.insert(place, f"{base64.b64encode(new).decode()}\n")
    _replace(file, "".join(lines))
    return key_id(new)


def read_keys(text: str, file: Path) -> dict[str, bytes]:
    """Read the keys of a key file, the first one first."""
    found: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not _is_key(line):
            continue
        try:
            key = base64.b64decode(line.strip(), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            raise NoKey(f"line {number} of {file} is no key: it must be {KEY_BYTES} bytes in base64")
        found[key_id(key)] = key
    return found


class Keyring:
    """The keys of one server. The file is read when a key is needed, and again when it has changed."""

    def __init__(self, file: Path | None = None, *, is_made: bool = False) -> None:
        """Read keys from a file; with `is_made` it is made when the first secret is stored."""
        self.file = file
        self._is_made = is_made
        self._keys: Mapping[str, bytes] = {}
        self._seen: tuple[int, ...] | None = None  # the identity of the file when it was read

    def ids(self) -> frozenset[str]:
        """Return the ids of the keys; none if the file cannot be used."""
        try:
            return frozenset(self._read())
        except NoKey:
            return frozenset()

    def first(self) -> str:
        """Return the id of the first key."""
        found = next(iter(self._read()), None)
        if found is None:
            raise NoKey(self.trouble())
        return found

    def make_first(self) -> str:
        """Return the id of the first key; make the file if there is none and this server makes one."""
        if self._is_made and self.file is not None and not self.file.exists():
            return add_key(self.file)
        return self.first()

    def trouble(self, key_id: str = "") -> str:
        """Say why there is no key, or not the one with an id."""
        if self.file is None:
            return "this server has no key for secrets: start it with --secrets-key-file FILE"
        try:
            self._read()
        except NoKey as trouble:
            return str(trouble)
        if not key_id:
            return f"{self.file} has no key: make one with: taskyard secret key {self.file}"
        return f"the key {key_id} is not in {self.file}: put the file back that had it"

    def seal(self, key_id: str, value: bytes, about: str) -> Sealed:
        """Encrypt a value with a new key, and that with a key of the file; `about` says what it is."""
        own = secrets.token_bytes(KEY_BYTES)
        return Sealed(key_id, self.wrap(key_id, own, about), _encrypt(own, value, f"value {about}"))

    def open(self, sealed: Sealed, about: str) -> bytes:
        """Decrypt a value."""
        return _decrypt(self.unwrap(sealed.key_id, sealed.wrapped_key, about), sealed.body, f"value {about}")

    def wrap(self, key_id: str, own: bytes, about: str) -> bytes:
        """Encrypt the key of a secret."""
        return _encrypt(self._key(key_id), own, f"key {about}")

    def unwrap(self, key_id: str, wrapped_key: bytes, about: str) -> bytes:
        """Decrypt the key of a secret."""
        return _decrypt(self._key(key_id), wrapped_key, f"key {about}")

    def _key(self, key_id: str) -> bytes:
        key = self._read().get(key_id)
        if key is None:
            raise NoKey(self.trouble(key_id))
        return key

    def _read(self) -> Mapping[str, bytes]:
        if self.file is None:
            return {}
        try:
            found = self.file.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen == self._seen:
                return self._keys
            if found.st_mode & OTHERS:
                raise NoKey(f"others can read {self.file}: run `chmod 600 {self.file}`")
            if found.st_size > _FILE_BYTES_MAX:
                raise NoKey(f"{self.file} is too large for a key file")
            self._keys, self._seen = read_keys(self.file.read_text(encoding="utf-8"), self.file), seen
        except FileNotFoundError:
            self._keys, self._seen = {}, None
            if not self._is_made:
                raise NoKey(
                    f"there is no {self.file}: put it back, or make it with: taskyard secret key {self.file}"
                ) from None
        except (OSError, UnicodeDecodeError) as error:
            self._keys, self._seen = {}, None
            raise NoKey(f"cannot read {self.file}: {getattr(error, 'strerror', None) or 'it is no text'}") from error
        return self._keys


def keyring_of(url: str, file: Path | None) -> Keyring:
    """Return the keys of a server of a database; the file is beside an SQLite database unless it is given."""
    scheme, _, rest = url.partition("://")
    if file is not None or scheme != "sqlite":
        return Keyring(file)
    return Keyring(Path(rest.removeprefix("/")).with_name(FILE_NAME), is_made=True)


def keyed_hash(key: bytes, *parts: bytes) -> str:
    """Hash some parts with a key, so that a guess can be tested only with the key."""
    found = hashlib.blake2b(key=key, digest_size=16, person=b"taskyard secret")
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()


def _is_key(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _encrypt(key: bytes, value: bytes, about: str) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - slow to load, seldom needed

    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, value, about.encode())


def _decrypt(key: bytes, body: bytes, about: str) -> bytes:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    try:
        return AESGCM(key).decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], about.encode())
    except (InvalidTag, ValueError) as error:
        raise Changed("it is not what was sealed: its row in the database was changed") from error


def _replace(file: Path, text: str) -> None:
    """Write a file for its owner alone, whole or not at all, and durably: what it opens is stored right after."""
    new = file.with_name(f"{file.name}.new-{secrets.token_hex(4)}")
    made = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        with open(made, "w", encoding="utf-8") as opened:
            os.fchmod(opened.fileno(), FILE_MODE)
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(new, file)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
