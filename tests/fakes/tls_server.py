"""A server on loopback whose certificate is signed by itself; it counts the connections."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class TlsServer:
    """`connections`: how many were tried; `received`: the bytes after a handshake."""

    def __init__(self) -> None:
        self.url = ""
        self.connections = 0
        self.received = b""


@contextmanager
def tls_server(folder: Path) -> Iterator[TlsServer]:
    server = TlsServer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_certificate(folder))
    listener = socket.create_server(("127.0.0.1", 0))
    server.url = f"https://127.0.0.1:{listener.getsockname()[1]}/v1"

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                server.connections += 1
                connection.settimeout(5)
                with (
                    suppress(OSError),
                    context.wrap_socket(connection, server_side=True) as wrapped,
                ):
                    server.received += wrapped.recv(4096)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def _certificate(folder: Path) -> Path:
    """A certificate that is signed by itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    secret = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(made.public_bytes(encoding) + secret)
    return path
