"""A subset of RabbitMQ's management HTTP API on the embedded broker, with nothing but the standard library.

`server` answers requests (over `redrive.http1`); `routes` maps paths to handlers, `replies` is what handlers answer;
`broker_view` is all that handlers see of the broker. One module for each kind of object: `vhosts`, `queues`,
`exchanges`, `bindings`, `messages`, `policies` (with `policy_validation`), `definitions`, `connections`, `users`,
`overview`. `request_fields` and `pagination` read bodies and queries; `api_profiles` is where the versions' answers
differ.
"""

from redrive.embedded.management.server import ManagementServer

__all__ = ["ManagementServer"]
