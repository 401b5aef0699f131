"""Send events to receivers by HTTP: signed, with bounds on time and size, and never to an address inside.

Signatures follow the Standard Webhooks specification: HMAC-SHA256 over id, time and body. The name of a receiver is
resolved once for each connection, every address that it has is checked, and one of them is connected to, so a name
cannot change its meaning in between. Redirects are not followed, and no proxy is taken from the environment.
"""

import base64
import binascii
import hmac
import http.client
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from threading import Event, Timer
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

#: How long a receiver may take to answer, in all.
ANSWER_MAX_S: Final = 15
#: How much of an answer is read; a longer one ends the connection.
ANSWER_BYTES_MAX: Final = 65_536
URL_MAX: Final = 2_000
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - the prefix is public
SECRET_MIN, SECRET_MAX = 24, 64
#: How many addresses of a name are tried.
_ADDRESSES_MAX: Final = 4
_PORTS: Final = {"http": 80, "https": 443}
#: Prefixes of IPv6 that carry an address of IPv4, to which a gateway sends on: the last four bytes.
_NAT64: Final = IPv6Network("64:ff9b::/96")


class ForbiddenAddress(Exception):
    """A receiver has an address inside, which this server does not send to."""


def url_fault(url: str) -> str | None:
    """Return what is wrong with the URL of a receiver."""
    if len(url) > URL_MAX or not url.isascii() or not url.isprintable() or " " in url:
        return f"must be a URL of at most {URL_MAX} printable ASCII characters"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is not a URL: {error}"
    if parts.scheme not in _PORTS or not parts.hostname:
        return "must begin with https:// or http://, and name a host"
    if parts.username is not None or parts.password is not None:
        return "must not have a user or a password: receivers check the signature"
    if parts.fragment:
        return "must not have a fragment"
    return "must not have the port 0" if port == 0 else None


def secret_fault(secret: str) -> str | None:
    """Return what is wrong with a secret."""
    found = secret_bytes(secret)
    if found is None or not SECRET_MIN <= len(found) <= SECRET_MAX:
        return f"must be {SECRET_PREFIX} and {SECRET_MIN} to {SECRET_MAX} bytes in base64"
    return None


def secret_bytes(secret: str) -> bytes | None:
    """Return the key that a secret stands for; None if it is none."""
    if not secret.startswith(SECRET_PREFIX):
        return None
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None


def signed_headers(secret: str, id: str, at_s: int, body: bytes) -> dict[str, str]:
    """Return the headers that say which delivery this is, and prove who sent it."""
    key = secret_bytes(secret)
    assert key is not None, "a stored secret was checked"
    signature = hmac.digest(key, f"{id}.{at_s}.".encode() + body, "sha256")
    return {
        "webhook-id": id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }


def is_inside(address: Address, allowed: Sequence[Network]) -> bool:
    """Whether an address is not of the public Internet, and in no network that is allowed."""
    if any(address in network for network in allowed):
        return False
    carried = _carried(address)
    if carried is not None:
        return is_inside(carried, allowed)
    return not address.is_global or address.is_multicast or address.is_reserved or address.is_unspecified


def _carried(address: Address) -> IPv4Address | None:
    """Return the address of IPv4 that one of IPv6 stands for."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


def checked_addresses(host: str, port: int, allowed: Sequence[Network]) -> list[str]:
    """Resolve a host; raise `ForbiddenAddress` if any of its addresses is inside."""
    found = list(dict.fromkeys(str(row[4][0]) for row in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
    for text in found:
        if is_inside(ip_address(text.partition("%")[0]), allowed):
            raise ForbiddenAddress(
                f"{host} has the address {text}, which is not of the public Internet: "
                "allow its network with serve --webhook-network"
            )
    return found[:_ADDRESSES_MAX]


class Receiver:
    """The connection to a receiver, which is kept between deliveries. One thread uses it."""

    def __init__(self, url: str, allowed: Sequence[Network], context: ssl.SSLContext | None = None) -> None:
        self._parts: SplitResult = urlsplit(url)
        self._allowed = allowed
        self._context = context
        self._connection: http.client.HTTPConnection | None = None
        self._busy: socket.socket | None = None  # while a request is under way

    def post(self, body: bytes, headers: Mapping[str, str]) -> int:
        """Send a body; return the status of the answer. Raise OSError, HTTPException or ForbiddenAddress."""
        kept, self._connection = self._connection, None
        if kept is not None:
            # If the receiver has closed it meanwhile, a new one says whether the receiver is there.
            with suppress(OSError, http.client.HTTPException):
                return self._exchange(kept, body, headers)
        return self._exchange(self._connected(), body, headers)

    def _exchange(self, connection: http.client.HTTPConnection, body: bytes, headers: Mapping[str, str]) -> int:
        is_kept, is_late = False, Event()
        self._busy = connection.sock
        timer = Timer(ANSWER_MAX_S, _cut, [connection.sock, is_late])
        timer.daemon = True
        timer.start()
        try:
            target = f"{self._parts.path or '/'}{f'?{self._parts.query}' if self._parts.query else ''}"
            connection.request("POST", target, body, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            rest = answer.read(ANSWER_BYTES_MAX + 1)
            if is_late.is_set():
                raise TimeoutError(f"the answer took longer than {ANSWER_MAX_S} s")
            is_kept = len(rest) <= ANSWER_BYTES_MAX and not answer.will_close
            return answer.status
        finally:
            self._busy = None
            timer.cancel()
            if is_kept:
                self._connection = connection
            else:
                connection.close()

    def cut(self) -> None:
        """End the request that is under way, from another thread: it fails, and may have arrived."""
        if busy := self._busy:
            _shut(busy)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> http.client.HTTPConnection:
        """Connect to a checked address. The connection never opens another one by itself."""
        host, port = self._parts.hostname or "", self._parts.port or _PORTS[self._parts.scheme]
        connection = http.client.HTTPConnection(host, port, timeout=ANSWER_MAX_S)
        connection.auto_open = 0
        connection.sock = self._open(host, checked_addresses(host, port, self._allowed), port)
        return connection

    def _open(self, host: str, addresses: Sequence[str], port: int) -> socket.socket:
        fault: OSError = OSError(f"{host} has no address")
        for address in addresses:
            try:
                opened = socket.create_connection((address, port), timeout=ANSWER_MAX_S / _ADDRESSES_MAX)
            except OSError as error:
                fault = error
                continue
            opened.settimeout(ANSWER_MAX_S)
            if self._parts.scheme == "http":
                return opened
            try:
                self._context = self._context or ssl.create_default_context()
                return self._context.wrap_socket(opened, server_hostname=host)
            except BaseException:
                opened.close()
                raise
        raise fault


def _cut(opened: socket.socket, is_late: Event) -> None:
    """End a connection whose time is over, so that what waits for it ends."""
    is_late.set()
    _shut(opened)


def _shut(opened: socket.socket) -> None:
    with suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)
