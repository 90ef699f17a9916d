"""The admin API: FastAPI on the store and a broker. `redrive.serving` makes its parts and runs it.

`app` puts it together; `access/` says who may do what and see what; `routes/` has one module a subject, `shapes/` what
they answer. `limits`, `idempotency`, `security_headers` and `problems` are what every request goes through.
"""

from redrive.admin.access import CALLER, Caller, ensure_admin_token, keep_first, mint_first
from redrive.admin.app import create_app
from redrive.admin.broker_link import BrokerLink, Doing, WorkerState
from redrive.admin.live_updates import close_live_updates
from redrive.admin.services import Services
from redrive.admin.settings import InvalidSettings, Settings

__all__ = [
    "CALLER",
    "BrokerLink",
    "Caller",
    "Doing",
    "InvalidSettings",
    "Services",
    "Settings",
    "WorkerState",
    "close_live_updates",
    "create_app",
    "ensure_admin_token",
    "keep_first",
    "mint_first",
]
