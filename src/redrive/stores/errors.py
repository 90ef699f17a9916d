"""What can go wrong with a store, split by who must act.

    RedriveError
    └── StoreError
        ├── InvalidDatabaseUrl     the operator's: the URL can't be used; nothing was tried
        ├── StoreUnavailable       the environment's: locked, full, gone, refused; trying again later may do
        ├── StoreTooNew            the operator's: a newer Redrive has changed the schema
        ├── FilterTooExpensive     the caller's: the filter takes too long to answer; nothing was changed
        ├── LeaseLost              somebody else has the lease now; nothing was changed
        ├── UnknownOperation       no operation has this id
        ├── IdempotencyConflict    the key was used before for another request; nothing was changed
        └── VersionConflict        the dead letter has changed since it was read; nothing was changed

Whatever is raised, a transaction is done or not done, never half. After `StoreUnavailable` from a write nobody knows
which of the two: every write of this room may be repeated with the same arguments.
"""

from redrive.core import RedriveError


class StoreError(RedriveError):
    """The root of what stores raise."""


class InvalidDatabaseUrl(StoreError):
    """A database URL that can't be used; the message says why. It never repeats a password."""


class StoreUnavailable(StoreError):
    """The database can't be used now. `address` is where it is, without a password."""

    def __init__(self, address: str, reason: str, hint: str) -> None:
        self.address = address
        self.reason = reason
        self.hint = hint
        super().__init__(f"{address}: {reason}; {hint}")


class StoreTooNew(StoreError):
    """The schema is of a newer Redrive than this one."""

    def __init__(self, address: str, found: int, known: int) -> None:
        self.found = found
        self.known = known
        super().__init__(
            f"{address}: its schema is version {found}, this Redrive knows {known}; "
            "install the newer Redrive that has changed it, or name another database"
        )


class FilterTooExpensive(StoreError):
    """A filter takes too long, or reads too much. Nothing was changed, and no partial answer is given."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.hint = "narrow it down with queue:, status: or dead:, or ask for fewer values with body. and header."
        super().__init__(f"the filter takes too long: {reason}; {self.hint}")


class LeaseLost(StoreError):
    """The lease is not held any more: it ran out and somebody else took it, or it was released."""

    def __init__(self, name: str, owner: str) -> None:
        self.name = name
        self.owner = owner
        super().__init__(f"{owner} lost the lease {name} to another process, which continues; nothing was changed")


class UnknownOperation(StoreError):
    """There is no operation with this id."""

    def __init__(self, operation_id: str) -> None:
        self.operation_id = operation_id
        super().__init__(f"there is no operation {operation_id}; list them to see which there are")


class IdempotencyConflict(StoreError):
    """An idempotency key came again with another request."""

    def __init__(self, key: str, operation_id: str) -> None:
        self.key = key
        self.operation_id = operation_id
        super().__init__(
            f"the idempotency key {key!r} belongs to operation {operation_id}, which asks for something else; "
            "use a new key for a new request"
        )


class VersionConflict(StoreError):
    """A dead letter has another version than the caller read."""

    def __init__(self, letter_id: str, expected: int, found: int) -> None:
        self.letter_id = letter_id
        self.expected = expected
        self.found = found
        super().__init__(
            f"dead letter {letter_id} is at version {found}, not {expected}: somebody changed it; read it again"
        )
