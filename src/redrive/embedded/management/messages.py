"""Messages: get some from a queue, publish one to an exchange.

`ackmode` says what happens to the messages: `ack_requeue_true` nacks them and `reject_requeue_true` rejects them, both
with requeue; `reject_requeue_false` dead-letters them; `ack_requeue_false` gets them without acknowledgement, so they
are gone.
"""

import base64
import binascii
from typing import Any

from redrive import wire
from redrive.embedded.engine import AmqpError, BasicReturn, Channel, ConfirmNack, GetOk
from redrive.embedded.management.broker_view import BrokerView
from redrive.embedded.management.exchanges import exchange_name
from redrive.embedded.management.json_values import from_json, to_json
from redrive.embedded.management.replies import JSON, ApiError, Reply, bad_request, found, key_missing, not_found
from redrive.embedded.management.request_fields import short, text, whole
from redrive.embedded.management.routes import Request, Routes

_COUNT_MAX = 1_000_000
_ACKMODES = ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")
_TEXTS = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
_NUMBERS = ("delivery_mode", "priority", "timestamp")


def add_routes(routes: Routes) -> None:
    """The routes of messages."""
    routes.add("queues/{vhost}/{queue}/get", post=_get)
    routes.add("exchanges/{vhost}/{exchange}/publish", post=_publish)


def _get(request: Request, vhost: str, queue: str) -> Reply:
    fields, view = request.fields(), request.view
    ackmode = text(fields, "ackmode")
    count = whole(fields, "count")
    encoding = text(fields, "encoding")
    truncate = whole(fields, "truncate", 0) if "truncate" in fields else None
    if ackmode not in _ACKMODES:
        raise bad_request(f"Invalid ackmode value: {ackmode}. Valid values are: {', '.join(_ACKMODES)}")
    if encoding not in ("auto", "base64"):
        raise bad_request("Unsupported encoding. Please use auto or base64.")
    if queue not in view.vhost_for_command(vhost).queues:
        named = view.api_profile.missing_queue_is_named
        raise not_found(f"NOT_FOUND - no queue '{queue}' in vhost '{vhost}'" if named else "queue_not_found")
    with view.channel(vhost, request.user) as channel:
        got = _take(view, channel, queue, count, no_ack=ackmode == "ack_requeue_false")
        for one in got:
            match ackmode:
                case "ack_requeue_true":
                    channel.nack(one.delivery_tag, requeue=True)
                case "reject_requeue_true":
                    channel.reject(one.delivery_tag, requeue=True)
                case "reject_requeue_false":
                    channel.reject(one.delivery_tag, requeue=False)
    return found([_show(one, encoding, truncate) for one in got])


def _take(view: BrokerView, channel: Channel, queue: str, count: int, *, no_ack: bool) -> list[GetOk]:
    """Get `count` messages; below zero all there are."""
    got: list[GetOk] = []
    for _ in range(_COUNT_MAX if count < 0 else min(count, _COUNT_MAX)):
        try:
            if not channel.get(queue, no_ack=no_ack):
                break
        except AmqpError as error:
            raise bad_request(f"{error.code} {error.reason}") from None
        got += [effect for effect in view.take_effects_of(channel) if isinstance(effect, GetOk)]
    return got


def _show(got: GetOk, encoding: str, truncate: int | None) -> dict[str, JSON]:
    message = got.message
    body = message.body if truncate is None else message.body[: max(0, truncate)]
    payload, written = _payload(body, encoding)
    properties = {name: to_json(value) for name, value in wire.Properties(got.header).present().items()}
    return {
        "payload_bytes": len(message.body),
        "redelivered": got.redelivered,
        "exchange": message.exchange,
        "routing_key": message.keys[0],
        "message_count": got.left,
        "properties": properties or [],  # an empty list of pairs is all Erlang knows of it
        "payload": payload,
        "payload_encoding": written,
    }


def _payload(body: bytes, encoding: str) -> tuple[str, str]:
    if encoding == "auto":
        try:
            return body.decode(), "string"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode(), "base64"


def _publish(request: Request, vhost: str, exchange: str) -> Reply:
    fields, view, name = request.fields(), request.view, exchange_name(exchange)
    for needed in ("routing_key", "payload", "payload_encoding", "properties"):
        if needed not in fields:
            raise key_missing(needed)
    body = _body(text(fields, "payload"), text(fields, "payload_encoding"))
    header = _header(fields["properties"])
    known = name in view.vhost_for_command(vhost).exchanges
    if not known and not view.api_profile.missing_exchange_is_bad_request:
        raise not_found("exchange_not_found")
    with view.channel(vhost, request.user) as channel:
        channel.select_confirms()
        try:
            channel.publish(name, short(text(fields, "routing_key"), "routing_key"), header, body, True)
        except AmqpError as error:
            raise bad_request(f"{error.code} {error.text}") from None
        effects = view.take_effects_of(channel)
    return found({"routed": not any(isinstance(effect, BasicReturn | ConfirmNack) for effect in effects)})


def _body(payload: str, encoding: str) -> bytes:
    match encoding:
        case "string":
            return payload.encode("utf-8", "surrogatepass")
        case "base64":
            try:
                return base64.b64decode(payload, validate=True)
            except binascii.Error:
                raise bad_request(["not_base64", payload]) from None
        case _:
            raise bad_request(["unsupported_encoding", encoding])


def _header(properties: JSON) -> bytes:
    """The content header; properties that AMQP does not know are ignored, as RabbitMQ does."""
    if properties == []:
        properties = {}
    if not isinstance(properties, dict):
        raise bad_request("properties should be an object")
    values: dict[str, Any] = {}
    for name, value in properties.items():
        if name in _NUMBERS and (not isinstance(value, int) or isinstance(value, bool)):
            raise bad_request(["not_int", name])
        if name in _TEXTS and not isinstance(value, str):
            raise bad_request(["not_string", name])
        if name in _NUMBERS or name in _TEXTS:
            values[name] = wire.Timestamp(value) if name == "timestamp" else value
    headers = properties.get("headers", {})
    if not isinstance(headers, dict):
        raise bad_request("headers should be an object")
    try:
        return wire.Properties.of(headers=from_json(headers), **values).raw
    except wire.EncodingError as error:
        raise ApiError(400, "bad_request", str(error)) from None
