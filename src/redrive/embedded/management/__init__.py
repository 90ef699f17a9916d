"""A subset of RabbitMQ's management HTTP API on the embedded broker, with nothing but the standard library.

`server` answers requests (over `redrive.http1`); `routes` says which handler an address has, `replies` what handlers
answer; `house` is the only door to the broker's insides. One module for each kind of object: `vhosts`, `queues`,
`exchanges`, `bindings`, `messages`, `policies`, `definitions`, `connections`, `users`, `overview`. `dialects` is where
the versions' answers differ.
"""

from redrive.embedded.management.server import ManagementServer

__all__ = ["ManagementServer"]
