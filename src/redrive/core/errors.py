"""The one tree of errors, split by who must act.

    RedriveError
    ├── InvalidInput          the author of a file must mend it; carries every finding at once
    │   ├── InvalidDeclaration    a redrive.yaml or its Python equal
    │   └── InvalidDefinitions    a definitions.json
    ├── InvalidPolicy         the author of a rule, a backoff or a policy in Python must mend it; a ValueError, too
    └── UnreadableFile        the operator named a file that can't be read

Rooms above add their own branches below `RedriveError` (the AMQP client its connection and channel errors, and so
on). An error carries fields; its text is one sentence a finding: where, what, what to do next. The command line prints
that text and exits with 2, never with a traceback.
"""

from collections.abc import Sequence

from redrive.core.findings import Finding


class RedriveError(Exception):
    """The root of everything Redrive raises on purpose."""


class InvalidInput(RedriveError):
    """A file or value can't be used as it is; `findings` names everything that is wrong with it, in reading order."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(finding.text for finding in self.findings))


class InvalidDeclaration(InvalidInput):
    """A `redrive.yaml`, or the same said in Python, does not describe a topology."""


class InvalidDefinitions(InvalidInput):
    """A definitions.json is not one."""


class InvalidPolicy(RedriveError, ValueError):
    """A rule, a backoff or a policy that can't be meant; raised where it is written."""


class UnreadableFile(RedriveError):
    """A file can't be opened or is not text."""

    def __init__(self, *, path: str, reason: str, hint: str) -> None:
        self.path = path
        self.reason = reason
        self.hint = hint
        super().__init__(f"{path}: {reason}; {hint}")
