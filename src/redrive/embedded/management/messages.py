"""Messages by hand: get some from a queue, publish one to an exchange.

`ackmode` says what becomes of what was got: `ack_requeue_true` is a nack, `reject_requeue_true` a reject,
`reject_requeue_false` a dead-lettering, and `ack_requeue_false` a get without acknowledgement: gone.
"""

import base64
import binascii
from typing import Any

from redrive import wire
from redrive.embedded.engine import Channel, Got, Refusal, Refused, Return
from redrive.embedded.management.exchanges import exchange_name
from redrive.embedded.management.fields import short, text, whole
from redrive.embedded.management.house import House
from redrive.embedded.management.json_values import from_json, to_json
from redrive.embedded.management.replies import JSON, Problem, Reply, bad_request, found, key_missing, not_found
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
    """The addresses of messages."""
    routes.add("queues/{vhost}/{queue}/get", post=_get)
    routes.add("exchanges/{vhost}/{exchange}/publish", post=_publish)


def _get(request: Request, vhost: str, queue: str) -> Reply:
    fields, house = request.fields(), request.house
    ackmode = text(fields, "ackmode")
    count = whole(fields, "count")
    encoding = text(fields, "encoding")
    truncate = whole(fields, "truncate", 0) if "truncate" in fields else None
    if ackmode not in _ACKMODES:
        raise bad_request(f"Invalid ackmode value: {ackmode}. Valid values are: {', '.join(_ACKMODES)}")
    if encoding not in ("auto", "base64"):
        raise bad_request("Unsupported encoding. Please use auto or base64.")
    if queue not in house.vhost_for_command(vhost).queues:
        named = house.dialect.missing_queue_is_named
        raise not_found(f"NOT_FOUND - no queue '{queue}' in vhost '{vhost}'" if named else "queue_not_found")
    with house.channel(vhost, request.user) as channel:
        got = _take(house, channel, queue, count, no_ack=ackmode == "ack_requeue_false")
        for one in got:
            match ackmode:
                case "ack_requeue_true":
                    channel.nack(one.delivery_tag, requeue=True)
                case "reject_requeue_true":
                    channel.reject(one.delivery_tag, requeue=True)
                case "reject_requeue_false":
                    channel.reject(one.delivery_tag, requeue=False)
    return found([_show(one, encoding, truncate) for one in got])


def _take(house: House, channel: Channel, queue: str, count: int, *, no_ack: bool) -> list[Got]:
    """So many messages; below zero all there are."""
    got: list[Got] = []
    for _ in range(_COUNT_MAX if count < 0 else min(count, _COUNT_MAX)):
        try:
            if not channel.get(queue, no_ack=no_ack):
                break
        except Refusal as refusal:
            raise bad_request(f"{refusal.code} {refusal.reason}") from None
        got += [effect for effect in house.take_effects_of(channel) if isinstance(effect, Got)]
    return got


def _show(got: Got, encoding: str, truncate: int | None) -> dict[str, JSON]:
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
    fields, house, name = request.fields(), request.house, exchange_name(exchange)
    for needed in ("routing_key", "payload", "payload_encoding", "properties"):
        if needed not in fields:
            raise key_missing(needed)
    body = _body(text(fields, "payload"), text(fields, "payload_encoding"))
    header = _header(fields["properties"])
    known = name in house.vhost_for_command(vhost).exchanges
    if not known and not house.dialect.missing_exchange_is_bad_request:
        raise not_found("exchange_not_found")
    with house.channel(vhost, request.user) as channel:
        channel.select_confirms()
        try:
            channel.publish(name, short(text(fields, "routing_key"), "routing_key"), header, body, True)
        except Refusal as refusal:
            raise bad_request(f"{refusal.code} {refusal.text}") from None
        effects = house.take_effects_of(channel)
    return found({"routed": not any(isinstance(effect, Return | Refused) for effect in effects)})


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
        raise Problem(400, "bad_request", str(error)) from None
