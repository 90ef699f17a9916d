"""Where settings come from: a flag wins, then the environment, then the file; defaults last."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from redrive.core import RedriveError

DEFAULT_URL = "amqp://guest:guest@localhost:5672/"
DEFAULT_DATABASE = "sqlite:///redrive.db"
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = "8025"
"""Where the admin API listens."""

_YES = ("1", "true", "yes", "on")
_NO = ("0", "false", "no", "off")


class InvalidSetting(RedriveError):
    """A setting that can't be used; the text says whose, and what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value and who said it, for messages."""

    value: str
    source: str


def broker_url(
    *, flag: str | None, environment: Mapping[str, str], file: str | None, file_name: str | None = None
) -> Setting:
    """The broker's URL. `file` is what the file's `broker:` says, `file_name` its name, for messages."""
    if flag is not None:
        return Setting(value=flag, source="--url")
    if environment.get("REDRIVE_URL"):
        return Setting(value=environment["REDRIVE_URL"], source="REDRIVE_URL")
    if file is not None:
        return Setting(value=file, source="the file's broker:" if file_name is None else f"broker: of {file_name}")
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


def chosen(flag: str, said: str | None, environment: Mapping[str, str], variable: str, default: str) -> Setting:
    """A setting that a flag or the environment may say."""
    if said is not None:
        return Setting(value=said, source=flag)
    if environment.get(variable):
        return Setting(value=environment[variable], source=variable)
    return Setting(value=default, source="the default")


def chosen_port(said: int | None, environment: Mapping[str, str]) -> Setting:
    """The admin API's port; 0 takes any free one. Raises `InvalidSetting`."""
    setting = chosen("--port", None if said is None else str(said), environment, "REDRIVE_PORT", DEFAULT_PORT)
    if not setting.value.isascii() or not setting.value.isdigit() or int(setting.value) > 65_535:
        raise InvalidSetting(f"{setting.source} is {setting.value!r}, and no port; write a number from 0 to 65535")
    return setting


def switched(flag: str, is_off: bool, environment: Mapping[str, str], variable: str) -> Setting:
    """Something that is on (`yes`) unless a flag or the environment says no. Raises `InvalidSetting`."""
    setting = chosen(flag, "no" if is_off else None, environment, variable, "yes")
    word = setting.value.strip().lower()
    if word not in _YES + _NO:
        raise InvalidSetting(f"{setting.source} is {setting.value!r}; write yes or no")
    return Setting(value="yes" if word in _YES else "no", source=setting.source)


def names_vhost(url: str) -> bool:
    """Whether a URL says a vhost itself. A bare "/" at its end does not; "%2F" is the vhost "/"."""
    try:
        return urlsplit(url).path not in ("", "/")
    except ValueError:
        return False
