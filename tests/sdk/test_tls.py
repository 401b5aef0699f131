"""A server behind TLS: a certificate that the machine trusts is needed, and enough."""

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.sdk import Client, Unreachable, http
from tests.sdk.faulty_server import FaultyServer, faulty_server, json_reply


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *kind, *subject, "-keyout", str(file), "-out", f"{file}.crt"]
    subprocess.run(command, check=True, capture_output=True)
    return file


@pytest.fixture
def server(certificate: Path) -> Iterator[FaultyServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{certificate}.crt", certificate)
    with faulty_server(context) as one:
        yield one


def test_a_trusted_server_is_spoken_to(
    server: FaultyServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
    server.reply_with(json_reply({"items": []}))
    assert Client(server.url, "x").pools() == []


def test_a_caller_without_a_token_gets_no_information(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "WAIT_SECONDS", 0.001)
    with pytest.raises(Unreachable, match="certificate"):
        Client(server.url, "x").pools()
    assert server.asked == []
