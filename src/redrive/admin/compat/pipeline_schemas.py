"""Schemas in the words of the file pipeline's document: queues, a peek, a re-drive with a limit."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from redrive.admin.compat.bookly_schemas import CamelResponse
from redrive.admin.schemas.base import LETTER_ID, OPERATION_ID, RequestSchema, example
from redrive.admin.schemas.redrives import Target

REDRIVE_MAX = 10_000
PEEK_MAX = 200


class PipelineQueue(CamelResponse):
    """A dead-letter queue: its messages on the broker, and those stored. Null if the broker could not be asked."""

    queue: str
    source_queue: str | None = Field(description="The queue whose dead letters arrive here, if it is known.")
    messages: int | None
    consumers: int | None
    stored: dict[str, int]
    collecting: bool = Field(description="Whether this process now collects it into the store.")
    stopped: str | None = Field(description="Why collecting it was stopped.")


class PipelineQueues(CamelResponse):
    """All known queues. `problem` says why the broker could not be asked, `worker` what the worker beside the API
    does."""

    model_config = ConfigDict(
        json_schema_extra=example(
            queues=[
                {
                    "queue": "q.thumbnail.dlq",
                    "sourceQueue": "q.thumbnail",
                    "messages": 0,
                    "consumers": 1,
                    "stored": {"PENDING": 3, "RETRYING": 0, "WAITING": 0, "IN_DOUBT": 0, "FAILED": 0, "RESOLVED": 0},
                    "collecting": True,
                    "stopped": None,
                }
            ],
            problem=None,
            worker="collecting",
        )
    )

    queues: list[PipelineQueue]
    problem: str | None
    worker: str


class PeekedEntry(CamelResponse):
    """A message in the store or on the queue; it stays there."""

    where: Literal["stored", "queue"]
    id: str | None = Field(description="Of a stored one.")
    status: str | None = Field(description="Of a stored one: PENDING, FAILED or IN_DOUBT.")
    message_id: str | None
    exchange: str
    routing_key: str
    redelivered: bool
    properties: dict[str, Any] | None
    headers: Any
    payload: str | None = Field(description="As text; null where it is not shown.")
    payload_encoding: str | None = Field(description="`utf-8`, or `base64` where it is no UTF-8.")


class PeekedQueue(CamelResponse):
    """The first messages of a queue, stored ones first: they died earlier. `left` lie on the queue behind them."""

    model_config = ConfigDict(
        json_schema_extra=example(
            queue="q.thumbnail.dlq",
            messages=[
                {
                    "where": "stored",
                    "id": LETTER_ID,
                    "status": "PENDING",
                    "messageId": "f-17",
                    "exchange": "domain.events",
                    "routingKey": "files.validated.v1",
                    "redelivered": False,
                    "properties": {"content_type": "application/json"},
                    "headers": {},
                    "payload": '{"fileId": "f-17"}',
                    "payloadEncoding": "utf-8",
                }
            ],
            left=0,
            note="",
        )
    )

    queue: str
    messages: list[PeekedEntry]
    left: int | None
    note: str = Field(description="What the peek did, or why there was none.")


class RedriveQueueRequest(RequestSchema):
    """How many at most, the longest dead first."""

    model_config = ConfigDict(json_schema_extra=example(limit=10))

    limit: int = Field(default=10, ge=1, le=REDRIVE_MAX)


class RedrivenQueue(CamelResponse):
    """The operation that sends them, and its progress. `Location` is where to follow it."""

    model_config = ConfigDict(
        json_schema_extra=example(
            queue="q.thumbnail.dlq",
            operation=OPERATION_ID,
            state="done",
            total=10,
            redriven=10,
            refused=0,
            inDoubt=0,
            target={"exchange": "retry.{queue}", "routing_key": "retry"},
            left=0,
            note="",
        )
    )

    queue: str
    operation: str | None = Field(description="Null where there was nothing to send.")
    state: str
    total: int
    redriven: int
    refused: int
    in_doubt: int
    target: Target
    left: int | None = Field(description="Messages that are still on the queue itself; null: unknown.")
    note: str
