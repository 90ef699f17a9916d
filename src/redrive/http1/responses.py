"""HTTP/1.1 answers as bytes."""

from collections.abc import Mapping
from http import HTTPStatus


def response_bytes(
    status: int, body: bytes, headers: Mapping[str, str], *, keep_alive: bool, without_body: bool = False
) -> bytes:
    """An answer. `without_body`: it answers HEAD, so only the length of the body is sent."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if status != 204:
        lines.append(f"content-length: {len(body)}")
    if not keep_alive:
        lines.append("connection: close")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")
    return head if without_body else head + body
