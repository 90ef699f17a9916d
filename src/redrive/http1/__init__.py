"""A small HTTP/1.1 server on the standard library, for the metrics endpoint and the embedded broker's management API.

Both must work without any extra installed, so neither can use the admin API's web server. `Http1Server` listens and
keeps connections; `read_request` reads a whole request, `read_request_line` only its first line; `response_bytes`
writes an answer. It knows nothing of what is served.
"""

from redrive.http1.requests import (
    HEAD_BYTES_MAX,
    HttpError,
    HttpRequest,
    RequestLine,
    read_request,
    read_request_line,
)
from redrive.http1.responses import response_bytes
from redrive.http1.server import Http1Server

__all__ = [
    "HEAD_BYTES_MAX",
    "Http1Server",
    "HttpError",
    "HttpRequest",
    "RequestLine",
    "read_request",
    "read_request_line",
    "response_bytes",
]
