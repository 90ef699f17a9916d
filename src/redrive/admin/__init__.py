"""The admin API: FastAPI on the store and a broker. `redrive.serving` makes its parts and runs it.

`app` lists the `middleware/` in its order and the routes: `routes/` are `/api/v1`, with their `schemas/`; `compat/` are
the endpoints of Bookly and of the file pipeline. `access/` decides who may do and see what, `scope` which dead letters
a caller reaches, and `problems` turns every refusal into problem+json.
"""

from redrive.admin.access.authorization import CALLER
from redrive.admin.access.bootstrap_token import mint_first_token, store_first_token
from redrive.admin.access.caller import Caller
from redrive.admin.app import create_app
from redrive.admin.live_updates import close_live_updates
from redrive.admin.services import Services
from redrive.admin.settings import ApiSettings, InvalidSettings
from redrive.admin.shared_broker import SharedBroker
from redrive.admin.worker_state import WorkerActivity, WorkerState

__all__ = [
    "CALLER",
    "ApiSettings",
    "Caller",
    "InvalidSettings",
    "Services",
    "SharedBroker",
    "WorkerActivity",
    "WorkerState",
    "close_live_updates",
    "create_app",
    "mint_first_token",
    "store_first_token",
]
