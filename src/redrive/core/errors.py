"""The one tree of errors, by who must act. A room hangs its own below `RedriveError`; a test compares.

    RedriveError
    │   the author of a declaration, a script or an app corrects it
    ├── InvalidInput           a file or text; carries every finding at once
    │   ├── InvalidDeclaration     a redrive.yaml or the same in Python
    │   └── InvalidDefinitions     a definitions.json
    ├── InvalidPolicy          a rule, a backoff or a policy in Python; a ValueError too
    │   the operator corrects a setting or asks for something else; nothing was changed
    ├── UnreadableFile         core: a file that can't be read
    ├── InvalidSetting         wiring: a setting that can't be used
    ├── InvalidSettings        admin: settings that can't be used together
    ├── InvalidPush            runtime.push: a URL, a secret or a header
    ├── InvalidToken           records: an access token that can't be made
    ├── InvalidHead            records: a text that is no head of the audit chain
    ├── InvalidRedaction       records: a value that can't be hidden so
    ├── InvalidEdit            deadletters: an edit of a dead letter
    ├── BadLine                deadletters: a line of an import
    ├── UnknownId              cli: an id that names no dead letter, or several
    ├── HiddenBody             cli: a body that the caller's role does not see
    ├── ActionRefused          deadletters: an action on dead letters that can't be done
    ├── PeekRefused            deadletters: peeking would drop or reorder messages
    ├── TargetRefused          deadletters: the targets of a redrive can't take the copies
    ├── Uncopyable             deadletters: a dead letter of which no copy can be made
    ├── StillCollected         deadletters: a collector still has the queue
    ├── NothingToCollect       wiring: no queue is left to collect from
    ├── ApplyFailed            deploy: an object could not be declared
    ├── ServeFailed            serving: the API can't be served
    ├── EndpointFailed         telemetry: the metrics port is taken
    │   the environment: it passes, or somebody else has what is needed
    ├── QueueBusy              deadletters: somebody else consumes from the queue
    ├── BatchLost              deadletters: the channel closed while a batch was held
    ├── RunsElsewhere          deadletters: another redriver runs the operation
    ├── DemoFailed             demo: an order could not be sent
    ├── Stuck                  testing: everybody waits, and nothing will happen any more
    │   a room with more of them has a root, and draws its branch itself
    ├── ClientError            client: AMQP connections, channels and deliveries
    ├── ProtocolError          wire: AMQP was broken
    ├── StoreError             stores: the database
    ├── ManagementError        management: RabbitMQ's HTTP API
    ├── EmbeddedError          embedded: the embedded broker itself
    ├── AmqpError              embedded: a refusal that it sends to its client
    ├── ApiError               embedded: a refusal of its HTTP API
    └── AppError               runtime: apps and their handlers

An error carries fields; its text is one sentence a finding: where, what, what to do next. The command line prints that
text and exits with 2, never with a traceback. `InvalidDuration` is a plain ValueError: its readers turn it into one of
these.
"""

from collections.abc import Sequence

from redrive.core.findings import Finding


class RedriveError(Exception):
    """The root of every error that Redrive raises on purpose."""


class InvalidInput(RedriveError):
    """A file or value can't be used as it is; `findings` names everything that is wrong with it, in reading order."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(finding.text for finding in self.findings))


class InvalidDeclaration(InvalidInput):
    """A `redrive.yaml`, or the same said in Python, does not describe a topology."""


class InvalidDefinitions(InvalidInput):
    """A file is no definitions.json."""


class InvalidPolicy(RedriveError, ValueError):
    """A rule, a backoff or a policy that makes no sense; raised where it is written."""


class UnreadableFile(RedriveError):
    """A file can't be opened or is not text."""

    def __init__(self, *, path: str, reason: str, hint: str) -> None:
        self.path = path
        self.reason = reason
        self.hint = hint
        super().__init__(f"{path}: {reason}; {hint}")
