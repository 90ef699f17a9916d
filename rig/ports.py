"""Free loopback ports that stay ours: two test runs on one machine must not choose the same.

A port that was merely seen free may be taken before the broker listens on it. So the rig keeps a socket bound to it,
with SO_REUSEADDR and without listening: Linux then lets a broker, whose sockets set SO_REUSEADDR too, listen there, as
often as it is restarted, while anyone who looks for a free port finds it taken. The kernel gives it back when we die.
"""

from __future__ import annotations

import socket


class Ports:
    """The ports of one run, held until `close`."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def reserve(self) -> int:
        """A port on 127.0.0.1 that nobody else gets before `close`."""
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # Bound first: with SO_REUSEADDR already set, the kernel could hand out a port another run holds like this.
        holder.bind(("127.0.0.1", 0))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.append(holder)
        port: int = holder.getsockname()[1]
        return port

    def close(self) -> None:
        while self._held:
            self._held.pop().close()
