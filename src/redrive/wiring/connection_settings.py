"""Where the broker, its management API and the database are, for commands that work on dead letters.

What connects to a broker or reads a file is imported only where it is used: a list of dead letters needs neither.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redrive.core import NULL_OBSERVER, Observer
from redrive.wiring.settings import Setting, broker_url, database_url
from redrive.wiring.settings import management_url as management_setting

if TYPE_CHECKING:
    from redrive.client import BrokerTarget, Client, ReconnectBackoff
    from redrive.management import Management
    from redrive.wiring.files import LoadedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Where the database, the broker and its management API are, with the source of each. Nothing is connected yet."""

    url: Setting
    management_url: Setting | None
    database: Setting
    loaded: "LoadedFile | None" = None

    @property
    def target(self) -> "BrokerTarget":
        """The broker and vhost. The URL's vhost wins over the file's. Raises `InvalidUrl`."""
        from redrive.client import parse_url

        vhosts = () if self.loaded is None else self.loaded.topology.vhosts
        return parse_url(self.url.value, vhost=vhosts[0].name if vhosts else "/")

    def client(
        self, name: str, *, observer: Observer = NULL_OBSERVER, backoff: "Callable[[], ReconnectBackoff] | None" = None
    ) -> "AbstractAsyncContextManager[Client]":
        """A connection to the broker while a block runs. A refusal says what to change.

        Raises `InvalidUrl`; and in the block `ConnectionFailed`, `LoginRefused`, `PermissionMissing`.
        """
        from redrive.client import ReconnectBackoff
        from redrive.wiring.broker_connection import connected

        backoff = ReconnectBackoff if backoff is None else backoff
        return connected(self.target, self.url, name=name, observer=observer, backoff=backoff)

    def management(self) -> "Management":
        """A client of the management API, at its setting or at the usual port; nothing is asked yet.

        Raises `InvalidUrl`, `InvalidManagementUrl`.
        """
        from redrive.wiring.broker_connection import management_of

        return management_of(self.target, self.management_url)


def find_connection_settings(
    *,
    url: str | None = None,
    management_url: str | None = None,
    database: str | None = None,
    file: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> ConnectionSettings:
    """A flag wins, then the environment, then the file. Raises what reading a file may."""
    known = os.environ if environment is None else environment
    loaded = None
    if file is not None:
        from redrive.wiring.files import load_file

        loaded = load_file(file)
    return ConnectionSettings(
        url=broker_url(flag=url, environment=known, file=None if loaded is None else loaded.broker),
        management_url=management_setting(flag=management_url, environment=known),
        database=database_url(flag=database, environment=known, file=None if loaded is None else loaded.database),
        loaded=loaded,
    )
