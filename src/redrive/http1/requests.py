"""HTTP/1.1 requests, read from a stream. Strict and bounded.

Bodies come with a length or in chunks. A request that is malformed, too large or too slow raises `HttpError`. Its
server answers it and closes the connection, because nobody knows where the next request begins.
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus

HEAD_BYTES_MAX = 32 * 1024
HEADERS_MAX = 100
BODY_BYTES_MAX = 64 * 1024 * 1024
IDLE_S_MAX = 60.0
"""How long a kept connection may be silent between two requests, and a request's head may take."""
BODY_S_MAX = 30.0

_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_CHUNK_LINE_BYTES_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request. Header names are in lower case; of one given twice the values are joined with a comma."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    keep_alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLine:
    """A request without its headers and body."""

    method: str
    target: str


class HttpError(Exception):
    """A request that is refused with this status; the connection ends with it."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(f"{status.value} {reason}")


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest | None:
    """The next request, or None when the client is done. Raises HttpError, ConnectionError.

    `reader`'s own limit must be `HEAD_BYTES_MAX`. `writer` is for "100 Continue" alone.
    """
    try:
        async with asyncio.timeout(IDLE_S_MAX):
            head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None  # nothing, or not even a head: nobody waits for an answer
    except asyncio.LimitOverrunError:
        raise HttpError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {HEAD_BYTES_MAX} bytes") from None
    except TimeoutError:
        return None
    method, target, version, headers = _parse_head(head)
    length = _body_length(headers)
    if headers.get("expect", "").lower() == "100-continue" and length != 0:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        async with asyncio.timeout(BODY_S_MAX):
            body = await (_read_chunks(reader) if length is None else reader.readexactly(length))
    except TimeoutError:
        raise HttpError(HTTPStatus.REQUEST_TIMEOUT, "the body did not come in time") from None
    except asyncio.IncompleteReadError:
        return None
    wish = headers.get("connection", "").lower()
    keep_alive = "close" not in wish if version == "HTTP/1.1" else "keep-alive" in wish
    return HttpRequest(method=method, target=target, headers=headers, body=body, keep_alive=keep_alive)


async def read_request_line(reader: asyncio.StreamReader) -> RequestLine:
    """The first line of a request; its headers are read and dropped. For a server that answers GET alone, once.

    Raises HttpError, and what `reader.readuntil` does. There is no time limit.
    """
    head = await reader.readuntil(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise _malformed("this is HTTP/1.1")
    return RequestLine(method=words[0].decode("latin-1"), target=words[1].decode("latin-1"))


def _parse_head(head: bytes) -> tuple[str, str, str, dict[str, str]]:
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not _is_token(words[0]) or not words[1]:
        raise _malformed("the request line is not METHOD TARGET HTTP/1.1")
    method, target, version = words
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise HttpError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "this is HTTP/1.1")
    if len(lines) > HEADERS_MAX:
        raise HttpError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {HEADERS_MAX} headers")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _is_token(name) or "\r" in value or "\n" in value or "\0" in value:
            raise _malformed("a header is not NAME: VALUE")
        name, value = name.lower(), value.strip(" \t")
        if name in headers and name in ("content-length", "host", "transfer-encoding", "authorization"):
            raise _malformed(f"{name} is there twice")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if version == "HTTP/1.1" and "host" not in headers:
        raise _malformed("there is no Host")
    return method, target, version, headers


def _body_length(headers: dict[str, str]) -> int | None:
    """How long the body is, None if it comes in chunks."""
    coding = headers.get("transfer-encoding")
    length = headers.get("content-length")
    if coding is not None:
        if length is not None:
            raise _malformed("both Transfer-Encoding and Content-Length")
        if coding.lower() != "chunked":
            raise HttpError(HTTPStatus.NOT_IMPLEMENTED, f"Transfer-Encoding {coding}")
        return None
    if length is None:
        return 0
    if not (length.isascii() and length.isdecimal()) or len(length) > 18:
        raise _malformed("Content-Length is no number")
    if int(length) > BODY_BYTES_MAX:
        raise _too_large()
    return int(length)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        size_text = (await _read_line(reader)).partition(b";")[0].strip()
        if not size_text or len(size_text) > 15 or any(octet not in b"0123456789abcdefABCDEF" for octet in size_text):
            raise _malformed("a chunk has no size")
        size = int(size_text, 16)
        if size == 0:
            break
        if len(body) + size > BODY_BYTES_MAX:
            raise _too_large()
        body += await reader.readexactly(size)
        if await reader.readexactly(2) != b"\r\n":
            raise _malformed("a chunk is longer than it said")
    for _ in range(HEADERS_MAX):  # trailers, which nobody reads
        if not await _read_line(reader):
            return bytes(body)
    raise _malformed("too many trailers")


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readuntil(b"\r\n")
    except asyncio.LimitOverrunError:
        raise _malformed("a line does not end") from None
    if len(line) > _CHUNK_LINE_BYTES_MAX:
        raise _malformed("a line is too long")
    return line[:-2]


def _is_token(text: str) -> bool:
    return bool(text) and _TOKEN.issuperset(text)


def _malformed(reason: str) -> HttpError:
    return HttpError(HTTPStatus.BAD_REQUEST, reason)


def _too_large() -> HttpError:
    return HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {BODY_BYTES_MAX} bytes")
