"""`/api/v1/queues`: the dead-letter queues: how many messages lie on the broker, and how many are stored."""

from fastapi import APIRouter, Request

from redrive.admin.access.authorization import ViewerCaller
from redrive.admin.schemas.queues import Queue, Queues
from redrive.admin.services import services_of
from redrive.records import Role

router = APIRouter(prefix="/api/v1/queues", tags=["queues"])


@router.get("", response_model=Queues)
async def list_all(request: Request, caller: ViewerCaller) -> Queues:
    """The dead-letter queues. Depths are at most two seconds old. Without a broker the stored counts are shown
    nevertheless, and `problem` says why."""
    services = services_of(request)
    known, worker = await services.broker.queues(), services.workers()
    queues = [
        Queue.of(one, collecting=worker.why_not(one.dlq))
        for one in known.queues
        if caller.knows_dlq(one.dlq, one.known_queue)
    ]
    if caller.may(Role.ADMIN):
        return Queues(broker=known.address, problem=known.problem, worker=worker.text, queues=queues)
    # Only admins learn where the broker is, and why it can't be reached.
    problem = None if known.problem is None else "the broker can't be asked now; an admin sees why"
    return Queues(broker=None, problem=problem, worker=str(worker.activity), queues=queues)
