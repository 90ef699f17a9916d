"""The rig's errors, split by who must act.

RigError
├── Unavailable       a RabbitMQ version can't be had on this machine: who runs the tests
├── TestUrlsRefused   REDRIVE_TEST_URLS can't be read or reached: who set it
├── NodeFailed        a node did not start, or a rabbitmqctl command failed: the author of the test, or of the rig
└── ManagementRefused the management API answered with an error status: the author of the test
"""

from __future__ import annotations


class RigError(Exception):
    """Anything the rig could not do; its text is one sentence a person can act on, details on the lines after it."""


class Unavailable(RigError):
    """A version can't be had here; `reason` says why in half a sentence."""

    def __init__(self, *, label: str, reason: str) -> None:
        self.label = label
        self.reason = reason
        super().__init__(f"RabbitMQ {label} can't be had: {reason}")


class TestUrlsRefused(RigError):
    """REDRIVE_TEST_URLS names something that is not a usable broker."""

    __test__ = False  # pytest takes a class for tests by its name

    def __init__(self, *, entry: str, reason: str, hint: str) -> None:
        self.entry = entry
        self.reason = reason
        self.hint = hint
        super().__init__(f"REDRIVE_TEST_URLS: {entry!r} {reason}; {hint}")


class NodeFailed(RigError):
    """A node or one of its commands failed; `output` is the end of what it wrote."""

    def __init__(self, *, node: str, what: str, output: str) -> None:
        self.node = node
        self.what = what
        self.output = output
        super().__init__(f"{node}: {what}\n{output.rstrip()}")


class ManagementRefused(RigError):
    """The management API answered `status`; `detail` is its body."""

    def __init__(self, *, method: str, path: str, status: int, detail: str) -> None:
        self.method = method
        self.path = path
        self.status = status
        self.detail = detail
        super().__init__(f"{method} {path} was answered with {status}: {detail}")
