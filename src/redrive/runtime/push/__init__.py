"""Push: messages are posted to a service in any language by HTTP; its status decides what becomes of each.

`pusher` is a consumer's handler; `target` is where it posts to, `request_headers` and `signing` make the request,
`errors` are how it can fail. aiohttp is imported when a pusher is entered, not before.
"""

from redrive.runtime.push.errors import BadAnswer, Dropped, InvalidPush, TooSlow, Unreachable
from redrive.runtime.push.pusher import Pusher
from redrive.runtime.push.signing import is_signed, sign
from redrive.runtime.push.target import PushTarget, read_secrets

__all__ = [
    "BadAnswer",
    "Dropped",
    "InvalidPush",
    "PushTarget",
    "Pusher",
    "TooSlow",
    "Unreachable",
    "is_signed",
    "read_secrets",
    "sign",
]
