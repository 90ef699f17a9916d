"""Where settings come from: a flag wins, then the environment, then the file; defaults last."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from redrive.core import RedriveError

DEFAULT_URL = "amqp://guest:guest@localhost:5672/"
DEFAULT_DATABASE = "sqlite:///redrive.db"
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = "8025"
"""Where the admin API listens."""

_YES = ("1", "true", "yes", "on")
_NO = ("0", "false", "no", "off")


class InvalidSetting(RedriveError):
    """A setting that can't be used; the text says where it is from, and what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value and its source, for messages."""

    value: str
    source: str


def broker_url(
    *, flag: str | None, environment: Mapping[str, str], file: str | None, file_name: str | None = None
) -> Setting:
    """The broker's URL. `file` is what the file's `broker:` says, `file_name` its name, for messages.

    Secrets need not be on a command line, where every user of the machine sees them: the environment may have the URL,
    a file with it (`REDRIVE_URL_FILE`), or the password beside it (`REDRIVE_PASSWORD`, `REDRIVE_PASSWORD_FILE`). Raises
    `InvalidSetting` where a file can't be read.
    """
    setting = _broker_url(flag, environment, file, file_name)
    password = _secret(environment, "REDRIVE_PASSWORD")
    if password is None:
        return setting
    from redrive.client import with_password

    return Setting(value=with_password(setting.value, password.value), source=f"{setting.source} and {password.source}")


def _broker_url(flag: str | None, environment: Mapping[str, str], file: str | None, file_name: str | None) -> Setting:
    if flag is not None:
        return Setting(value=flag, source="--url")
    said = _secret(environment, "REDRIVE_URL")
    if said is not None:
        return said
    if file is not None:
        return Setting(value=file, source="the file's broker:" if file_name is None else f"broker: of {file_name}")
    return Setting(value=DEFAULT_URL, source="the default")


def management_url(*, flag: str | None, environment: Mapping[str, str]) -> Setting | None:
    """The management API's URL; None: it is not set, and guessed from the broker's."""
    if flag is not None:
        return Setting(value=flag, source="--management-url")
    return _secret(environment, "REDRIVE_MANAGEMENT_URL")


def database_url(*, flag: str | None, environment: Mapping[str, str], file: str | None) -> Setting:
    """The URL of the database that keeps dead letters."""
    if flag is not None:
        return Setting(value=flag, source="--database")
    said = _secret(environment, "REDRIVE_DATABASE")
    if said is not None:
        return said
    if file is not None:
        return Setting(value=file, source="the file's database:")
    return Setting(value=DEFAULT_DATABASE, source="the default")


def user_name(*, flag: str | None, environment: Mapping[str, str], login: str | None) -> str:
    """The user's name for the audit: the flag, else REDRIVE_USER, else the login."""
    if flag:
        return flag
    return environment.get("REDRIVE_USER") or login or "unknown"


def chosen_setting(flag: str, said: str | None, environment: Mapping[str, str], variable: str, default: str) -> Setting:
    """A setting from a flag, else from the environment, else the default."""
    if said is not None:
        return Setting(value=said, source=flag)
    if environment.get(variable):
        return Setting(value=environment[variable], source=variable)
    return Setting(value=default, source="the default")


def chosen_port(said: int | None, environment: Mapping[str, str]) -> Setting:
    """The admin API's port; 0 takes any free one. Raises `InvalidSetting`."""
    setting = chosen_setting("--port", None if said is None else str(said), environment, "REDRIVE_PORT", DEFAULT_PORT)
    if not setting.value.isascii() or not setting.value.isdigit() or int(setting.value) > 65_535:
        raise InvalidSetting(f"{setting.source} is {setting.value!r}, and no port; write a number from 0 to 65535")
    return setting


def switch_setting(flag: str, is_off: bool, environment: Mapping[str, str], variable: str) -> Setting:
    """A switch that is `yes` unless a flag or the environment turns it off. Raises `InvalidSetting`."""
    setting = chosen_setting(flag, "no" if is_off else None, environment, variable, "yes")
    word = setting.value.strip().lower()
    if word not in _YES + _NO:
        raise InvalidSetting(f"{setting.source} is {setting.value!r}; write yes or no")
    return Setting(value="yes" if word in _YES else "no", source=setting.source)


def _secret(environment: Mapping[str, str], variable: str) -> Setting | None:
    """The value of a variable, or of the file that the variable with `_FILE` names. Raises `InvalidSetting`."""
    if environment.get(variable):
        return Setting(value=environment[variable], source=variable)
    name = environment.get(f"{variable}_FILE")
    if not name:
        return None
    try:
        text = Path(name).read_text(encoding="utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise InvalidSetting(f"{variable}_FILE names {name}, which can't be read: {reason}") from None
    if not text.strip():
        raise InvalidSetting(f"{variable}_FILE names {name}, which is empty")
    return Setting(value=text, source=f"{variable}_FILE")
