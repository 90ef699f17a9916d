"""What routes need, in one value: made by `redrive.serving` or by a test, found by `services_of`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from redrive.admin.access.refusals import Refusals
from redrive.admin.settings import Settings
from redrive.admin.shares import Shares
from redrive.core import Observer
from redrive.deadletters import DeadLetterService
from redrive.stores import Store
from redrive.wiring import ConnectionSettings

if TYPE_CHECKING:
    from redrive.admin.broker_link import BrokerLink, WorkerState
    from redrive.deadletters import RedriveService


def _no_metrics() -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What routes need. All of it belongs to the event loop that serves."""

    place: ConnectionSettings
    store: Store
    desk: DeadLetterService
    redrives: "RedriveService"
    """Without a broker at hand: its plans have no preflight."""
    link: "BrokerLink"
    settings: Settings
    workers: "Callable[[], WorkerState]"
    """How this process's collector and redriver are."""
    observer: Observer
    clock_ms: Callable[[], int]
    new_id: Callable[[], str]
    wake: Callable[[], None]
    """Tells this process's redriver that an operation waits."""
    refusals: Refusals = field(default_factory=Refusals)
    shares: Shares = field(default_factory=Shares)
    metrics: Callable[[], str] = _no_metrics
    """The numbers in Prometheus' text format."""


def services_of(request: Request) -> Services:
    """The services of the app that a request came to."""
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


async def _given(request: Request) -> Services:
    # Not `services_of` itself: what can't wait, the framework gives to another thread, which costs more than a query.
    return services_of(request)


CurrentServices = Annotated[Services, Depends(_given)]
"""The same as a parameter of a route."""
