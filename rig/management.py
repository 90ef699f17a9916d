"""The management HTTP API, as tests look at a broker through it: JSON over urllib, nothing of the product.

The product has a management client of its own; what judges it must not be built from it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import ProxyHandler, Request, build_opener

from rig.errors import ManagementRefused

JSON = Any  # foreign JSON: tests take from it what they assert


class Management:
    """One broker's management API. Paths are segments, quoted here: `get("queues", vhost.name, "orders")`."""

    def __init__(self, url: str, *, user: str = "guest", password: str = "guest", timeout_s: float = 30.0) -> None:
        self.url = url.rstrip("/")
        self._authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self._timeout_s = timeout_s
        # A proxy from the environment is for the world outside, not for a broker under test.
        self._opener = build_opener(ProxyHandler({}))

    def get(self, *path: str, query: Mapping[str, str] | None = None) -> JSON:
        return self._call("GET", path, None, query)

    def put(self, *path: str, body: JSON = None) -> JSON:
        return self._call("PUT", path, {} if body is None else body, None)

    def post(self, *path: str, body: JSON = None) -> JSON:
        return self._call("POST", path, {} if body is None else body, None)

    def delete(self, *path: str, query: Mapping[str, str] | None = None) -> None:
        self._call("DELETE", path, None, query)

    def _call(self, method: str, path: tuple[str, ...], body: JSON, query: Mapping[str, str] | None) -> JSON:
        """The answer's JSON, or None when it has no body. Raises ManagementRefused, or OSError when nobody answers."""
        address = "/api/" + "/".join(quote(segment, safe="") for segment in path)
        if query:
            address += "?" + urlencode(query)
        request = Request(self.url + address, method=method, headers={"Authorization": self._authorization})
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                text = response.read()
        except HTTPError as error:
            with error:
                detail = error.read().decode(errors="replace")
            raise ManagementRefused(method=method, path=address, status=error.code, detail=detail) from None
        return json.loads(text) if text else None
