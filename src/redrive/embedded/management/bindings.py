"""Bindings: of a vhost, of one end, between two ends. Every queue is bound to the default exchange, and shown so.

A binding's path ends in its properties key: the routing key, and with arguments "~" and a hash of them. The hash is
ours: RabbitMQ's is Erlang's `phash2`, which clients take from a listing and never compute.
"""

import base64
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_plus, unquote_plus

from redrive.embedded.engine.amqp_errors import default_exchange
from redrive.embedded.engine.exchanges import Binding, Exchange
from redrive.embedded.engine.vhosts import Vhost
from redrive.embedded.management.broker_view import BrokerView
from redrive.embedded.management.exchanges import exchange_name, find_exchange
from redrive.embedded.management.json_values import to_json, write_json
from redrive.embedded.management.pagination import chosen, listed
from redrive.embedded.management.replies import JSON, Reply, done, found, made, object_not_found, refused
from redrive.embedded.management.request_fields import short, table, text
from redrive.embedded.management.routes import Request, Routes

_KINDS = {"q": "queue", "e": "exchange"}


def add_routes(routes: Routes) -> None:
    """The routes of bindings."""
    routes.add("bindings", get=_list_all)
    routes.add("bindings/{vhost}", get=_list)
    for letter, kind in _KINDS.items():
        between = f"bindings/{{vhost}}/e/{{source}}/{letter}/{{destination}}"
        routes.add(between, get=_Ends(kind).list_all, post=_Ends(kind).post)
        routes.add(f"{between}/{{key}}", get=_Ends(kind).get, delete=_Ends(kind).delete)
    routes.add("queues/{vhost}/{queue}/bindings", get=_of_queue)
    routes.add("exchanges/{vhost}/{exchange}/bindings/source", get=_from_exchange)
    routes.add("exchanges/{vhost}/{exchange}/bindings/destination", get=_to_exchange)


def all_bindings(vhost: Vhost) -> Iterator[Binding]:
    """The bindings that were declared, without those of the default exchange."""
    for exchange in vhost.exchanges.values():
        yield from exchange.bindings.values()


def destination_type(binding: Binding) -> str:
    """`queue` or `exchange`."""
    return "exchange" if isinstance(binding.destination, Exchange) else "queue"


def _show(vhost: Vhost, binding: Binding) -> dict[str, JSON]:
    return {
        "source": binding.source.name,
        "vhost": vhost.name,
        "destination": binding.destination.name,
        "destination_type": destination_type(binding),
        "routing_key": binding.routing_key,
        "arguments": to_json(binding.arguments),
        "properties_key": _properties_key(binding.routing_key, binding.arguments),
    }


def _default(vhost: Vhost, queue: str) -> dict[str, JSON]:
    """How the default exchange reaches a queue."""
    return {
        "source": "",
        "vhost": vhost.name,
        "destination": queue,
        "destination_type": "queue",
        "routing_key": queue,
        "arguments": {},
        "properties_key": _properties_key(queue, {}),
    }


def _all(vhost: Vhost) -> list[dict[str, JSON]]:
    made_by_people = sorted(
        (_show(vhost, binding) for binding in all_bindings(vhost)),
        key=lambda one: (one["source"], one["destination"], one["destination_type"], one["properties_key"]),
    )
    return [_default(vhost, name) for name in sorted(vhost.queues)] + made_by_people


def _list_all(request: Request) -> Reply:
    vhosts = request.view.engine.vhosts
    return listed([one for name in sorted(vhosts) for one in _all(vhosts[name])], request.query)


def _list(request: Request, vhost: str) -> Reply:
    return listed(_all(request.view.vhost(vhost)), request.query)


def _of_queue(request: Request, vhost: str, queue: str) -> Reply:
    engine_vhost = request.view.vhost(vhost)
    if queue not in engine_vhost.queues:
        raise object_not_found()
    ends = {"destination": queue, "destination_type": "queue"}
    return listed([one for one in _all(engine_vhost) if ends.items() <= one.items()], request.query)


def _from_exchange(request: Request, vhost: str, exchange: str) -> Reply:
    engine_vhost = request.view.vhost(vhost)
    name = find_exchange(engine_vhost, exchange).name
    return listed([one for one in _all(engine_vhost) if one["source"] == name], request.query)


def _to_exchange(request: Request, vhost: str, exchange: str) -> Reply:
    engine_vhost = request.view.vhost(vhost)
    ends = {"destination": find_exchange(engine_vhost, exchange).name, "destination_type": "exchange"}
    return listed([one for one in _all(engine_vhost) if ends.items() <= one.items()], request.query)


class _Ends:
    """The routes between an exchange and a queue, or between two exchanges."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def list_all(self, request: Request, vhost: str, source: str, destination: str) -> Reply:
        return listed(self._between(request.view, vhost, source, destination), request.query)

    def post(self, request: Request, vhost: str, source: str, destination: str) -> Reply:
        fields = request.fields()
        key, arguments = short(text(fields, "routing_key", ""), "routing_key"), table(fields, "arguments")
        name = exchange_name(source)
        with request.view.channel(vhost, request.user) as channel:
            if self._kind == "exchange":
                channel.bind_exchange(exchange_name(destination), name, key, arguments)
            else:
                channel.bind_queue(destination, name, key, arguments)
        props = _properties_key(key, arguments)
        letter = "q" if self._kind == "queue" else "e"
        # As the plugin writes it, encoded twice and all.
        place = "/".join(quote_plus(one) for one in (vhost, "e", source, letter, destination, props))
        return made(headers={"location": f"../../../../{place.replace('%7E', '~')}"})

    def get(self, request: Request, vhost: str, source: str, destination: str, key: str) -> Reply:
        return found(chosen(self._one(request.view, vhost, source, destination, key), request.query))

    def delete(self, request: Request, vhost: str, source: str, destination: str, key: str) -> Reply:
        one = self._one(request.view, vhost, source, destination, key)
        name = exchange_name(source)
        engine_vhost = request.view.vhost(vhost)
        for binding in list(all_bindings(engine_vhost)):
            if binding.source.name == name and _show(engine_vhost, binding) == one:
                engine_vhost.unbind(name, binding.destination, binding.routing_key, binding.arguments)
                return done()
        # Only the default exchange's remain, and those can't be taken away.
        raise refused(default_exchange())

    def _between(self, view: BrokerView, vhost: str, source: str, destination: str) -> list[dict[str, JSON]]:
        name = exchange_name(source)
        wanted = destination if self._kind == "queue" else exchange_name(destination)
        ends = {"source": name, "destination": wanted, "destination_type": self._kind}
        return [one for one in _all(view.vhost(vhost)) if ends.items() <= one.items()]

    def _one(self, view: BrokerView, vhost: str, source: str, destination: str, key: str) -> dict[str, JSON]:
        parts = key.split("~") if key != "~" else [""]
        wanted = "~".join(_quoted(unquote_plus(part)) for part in parts) or "~"
        for one in self._between(view, vhost, source, destination):
            if one["properties_key"] == wanted:
                return one
        raise object_not_found()


def _properties_key(key: str, arguments: Any) -> str:
    if not arguments:
        return _quoted(key) or "~"
    digest = zlib.crc32(write_json(dict(sorted(to_json(arguments).items())))).to_bytes(4, "big")
    return f"{_quoted(key)}~{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def _quoted(text: str) -> str:
    return quote_plus(text, errors="replace").replace("~", "%7E")
