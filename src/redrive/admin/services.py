"""Everything routes and middleware use, in one value. `redrive.serving` or a test makes it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from redrive.admin.access.access_audit import RefusalAudit
from redrive.admin.middleware.quotas import TokenQuotas
from redrive.admin.settings import ApiSettings
from redrive.admin.shared_broker import SharedBroker
from redrive.admin.worker_state import WorkerState
from redrive.core import Observer
from redrive.deadletters import DeadLetterService, RedriveService
from redrive.stores import Store
from redrive.wiring import ConnectionSettings


def _no_metrics() -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of one app. All of them belong to the event loop that serves it."""

    connections: ConnectionSettings
    store: Store
    dead_letters: DeadLetterService
    redrives: RedriveService
    """Without a broker: its plans have no preflight."""
    broker: SharedBroker
    settings: ApiSettings
    workers: Callable[[], WorkerState]
    """The state of this process's worker."""
    observer: Observer
    clock_ms: Callable[[], int]
    new_id: Callable[[], str]
    wake: Callable[[], None]
    """Wakes this process's redriver: an operation waits."""
    metrics: Callable[[], str] = _no_metrics
    """The process's own metrics, in Prometheus' text format."""
    refusal_audit: RefusalAudit = field(init=False)
    quotas: TokenQuotas = field(init=False)

    def __post_init__(self) -> None:
        audit = RefusalAudit(self.store, observer=self.observer, clock_ms=self.clock_ms)
        object.__setattr__(self, "refusal_audit", audit)
        object.__setattr__(self, "quotas", TokenQuotas(self.settings))


def services_of(request: Request) -> Services:
    """The services of the app that handles a request."""
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


async def _services(request: Request) -> Services:
    # Not `services_of` itself: FastAPI runs a function that is not async in a thread, which costs more than a query.
    return services_of(request)


CurrentServices = Annotated[Services, Depends(_services)]
"""The services, as a parameter of a route."""
