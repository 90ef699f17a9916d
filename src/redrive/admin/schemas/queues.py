"""Schemas of dead-letter queues."""

from pydantic import ConfigDict, Field

from redrive.admin.schemas.base import ResponseSchema, example
from redrive.records import Status
from redrive.wiring import KnownQueue


class Queue(ResponseSchema):
    """A dead-letter queue: its messages on the broker, and those stored. Null if the broker could not be asked."""

    dlq: str
    vhost: str
    queue: str | None = Field(description="The queue whose dead letters arrive here, if it is known.")
    messages: int | None
    consumers: int | None
    stored: dict[str, int]
    stopped: str | None = Field(description="Why collecting it was stopped.")
    collecting: str | None = Field(
        description="`yes` if this process collects it, else why not at the moment; null if it is not to collect it."
    )

    @classmethod
    def of(cls, known: KnownQueue, *, collecting: str | None) -> "Queue":
        """From a known queue; `collecting` is what the worker reports, "" if it collects it."""
        return cls(
            dlq=known.dlq,
            vhost=known.vhost,
            queue=known.known_queue,
            messages=known.messages,
            consumers=known.consumers,
            stored={status.value: known.stored.get(status.value, 0) for status in Status},
            stopped=known.stopped,
            collecting="yes" if collecting == "" else collecting,
        )


class Queues(ResponseSchema):
    """The queues. `problem` says why the broker could not be asked, `worker` what the worker beside the API does."""

    model_config = ConfigDict(
        json_schema_extra=example(
            broker="localhost:5672",
            problem=None,
            worker="collecting",
            queues=[
                {
                    "dlq": "orders.parked",
                    "vhost": "/",
                    "queue": "orders",
                    "messages": 0,
                    "consumers": 1,
                    "stored": {"pending": 400, "retrying": 12, "waiting": 0, "in_doubt": 0, "failed": 0, "resolved": 0},
                    "stopped": None,
                    "collecting": "yes",
                }
            ],
        )
    )

    broker: str | None = Field(description="Its address, for admins.")
    problem: str | None
    worker: str
    queues: list[Queue]
