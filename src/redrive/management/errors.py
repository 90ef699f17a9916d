"""What can go wrong between us and a broker's management API, split by who must act.

    RedriveError
    └── ManagementError
        ├── InvalidManagementUrl     the operator's: the URL can't be used; nothing was asked
        ├── ManagementUnreachable    no response, or not in time, or no HTTP
        ├── ManagementDenied         401 or 403: the user, its password, or its tags
        └── ManagementFailed         any other response that can't be used; `status` is HTTP's

A queue that does not exist is no error: the result is None. Texts are one sentence, without a password.
"""

from redrive.core import RedriveError


class ManagementError(RedriveError):
    """The root of what the management client raises."""


class InvalidManagementUrl(ManagementError):
    """A management URL that can't be used; the message says why."""


class ManagementUnreachable(ManagementError):
    """No response came. `address` has no password in it."""

    def __init__(self, address: str, reason: str, *, source: str | None = None) -> None:
        self.address = address
        self.reason = reason
        hint = (
            "enable the plugin rabbitmq_management, or say where it is with --management-url"
            if source is None
            else f"check {source}, and whether the plugin rabbitmq_management is enabled"
        )
        super().__init__(f"the management API does not answer at {address}: {reason}; {hint}")


class ManagementDenied(ManagementError):
    """The API does not accept this user, or does not let it read this."""

    def __init__(self, address: str, *, user: str, status: int, path: str) -> None:
        self.address = address
        self.user = user
        self.status = status
        why = (
            "refuses the password; check the credentials in the URL"
            if status == 401
            else f"does not let it read {path}; give it the tag monitoring, and permissions on the vhost"
        )
        super().__init__(f"the management API at {address}, asked as user {user}, {why}")


class ManagementFailed(ManagementError):
    """A response that can't be used."""

    def __init__(self, address: str, *, path: str, status: int, detail: str) -> None:
        self.address = address
        self.status = status
        self.detail = detail
        super().__init__(f"the management API at {address} answered {status} to {path}: {detail or 'without a reason'}")
