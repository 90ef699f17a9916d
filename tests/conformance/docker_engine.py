"""Just enough of Docker's HTTP API to hand a running broker to a suite that wants to start a container.

Whatever image is asked for, the container "started" is the broker that runs already; ending it does nothing.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def docker_engine(ports: Mapping[str, int]) -> Iterator[str]:
    """The stand-in's address, for DOCKER_HOST; its containers have these ports (`{"5672/tcp": 35672}`)."""
    bindings = {port: [{"HostIp": "127.0.0.1", "HostPort": str(number)}] for port, number in ports.items()}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({"Id": "broker", "NetworkSettings": {"Ports": bindings}})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self._answer({"Id": "broker"})

        do_DELETE = do_POST

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def _answer(self, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)
