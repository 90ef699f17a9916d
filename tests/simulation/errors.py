"""What handlers raise here, so that consumers can have rules about it."""


class Refused(Exception):
    """Not worth a retry, to some consumers."""


class Broken(Exception):
    """A failure like any other."""


class Absent(ConnectionError):
    """A dependency is not there; enough of these pause a queue."""


class Answer(Exception):
    """An HTTP client's error: it has a status, and perhaps a Retry-After."""

    def __init__(self, status_code: int, retry_after_s: int | None = None) -> None:
        self.status_code = status_code
        self.headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
        super().__init__(f"answered {status_code}")
