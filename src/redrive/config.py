"""Where settings come from: a flag wins, then the environment, then the file; defaults last."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

DEFAULT_URL = "amqp://guest:guest@localhost:5672/"
DEFAULT_DATABASE = "sqlite:///redrive.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value and who said it, for messages."""

    value: str
    source: str


def broker_url(*, flag: str | None, environment: Mapping[str, str], file: str | None) -> Setting:
    """The broker's URL."""
    if flag is not None:
        return Setting(value=flag, source="--url")
    if environment.get("REDRIVE_URL"):
        return Setting(value=environment["REDRIVE_URL"], source="REDRIVE_URL")
    if file is not None:
        return Setting(value=file, source="the file's broker:")
    return Setting(value=DEFAULT_URL, source="the default")


def management_url(*, flag: str | None, environment: Mapping[str, str]) -> Setting | None:
    """The management API's URL; None: nobody said one, and it is guessed from the broker's."""
    if flag is not None:
        return Setting(value=flag, source="--management-url")
    if environment.get("REDRIVE_MANAGEMENT_URL"):
        return Setting(value=environment["REDRIVE_MANAGEMENT_URL"], source="REDRIVE_MANAGEMENT_URL")
    return None


def database_url(*, flag: str | None, environment: Mapping[str, str], file: str | None) -> Setting:
    """The URL of the database that keeps dead letters."""
    if flag is not None:
        return Setting(value=flag, source="--database")
    if environment.get("REDRIVE_DATABASE"):
        return Setting(value=environment["REDRIVE_DATABASE"], source="REDRIVE_DATABASE")
    if file is not None:
        return Setting(value=file, source="the file's database:")
    return Setting(value=DEFAULT_DATABASE, source="the default")


def user_name(*, flag: str | None, environment: Mapping[str, str], login: str | None) -> str:
    """Who is at work, for the audit trail: what they say, else the name they logged in with."""
    if flag:
        return flag
    return environment.get("REDRIVE_USER") or login or "unknown"


def names_vhost(url: str) -> bool:
    """Whether a URL says a vhost itself. A bare "/" at its end does not; "%2F" is the vhost "/"."""
    try:
        return urlsplit(url).path not in ("", "/")
    except ValueError:
        return False
