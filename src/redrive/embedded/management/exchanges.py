"""Exchanges: list, declare, delete. The default exchange is called `amq.default` in paths."""

from redrive.embedded.engine.exchanges import Exchange
from redrive.embedded.engine.vhosts import Vhost
from redrive.embedded.management.json_values import to_json
from redrive.embedded.management.pagination import chosen, listed
from redrive.embedded.management.policies import policy_name
from redrive.embedded.management.replies import JSON, Reply, done, found, made, object_not_found
from redrive.embedded.management.request_fields import flag, short, table, text
from redrive.embedded.management.routes import Request, Routes


def add_routes(routes: Routes) -> None:
    """The routes of exchanges."""
    routes.add("exchanges", get=_list_all)
    routes.add("exchanges/{vhost}", get=_list)
    routes.add("exchanges/{vhost}/{exchange}", get=_get, put=_put, delete=_delete)


def exchange_name(segment: str) -> str:
    """The exchange that a segment of a path names."""
    return "" if segment == "amq.default" else segment


def find_exchange(vhost: Vhost, segment: str) -> Exchange:
    """The same as an object. Raises ApiError (404)."""
    exchange = vhost.exchanges.get(exchange_name(segment))
    if exchange is None:
        raise object_not_found()
    return exchange


def _show(vhost: Vhost, exchange: Exchange) -> dict[str, JSON]:
    shown: dict[str, JSON] = {
        "arguments": to_json(exchange.arguments),
        "auto_delete": exchange.auto_delete,
        "durable": exchange.durable,
        "internal": exchange.internal,
        "name": exchange.name,
        "type": exchange.kind,
        "vhost": vhost.name,
    }
    policy = policy_name(vhost, exchange.name, "exchange", operator=False)
    return shown if policy is None else {**shown, "policy": policy}


def _listed(request: Request, vhosts: list[Vhost]) -> Reply:
    pairs = [(vhost, vhost.exchanges[name]) for vhost in vhosts for name in sorted(vhost.exchanges)]
    return listed([_show(vhost, exchange) for vhost, exchange in pairs], request.query)


def _list_all(request: Request) -> Reply:
    vhosts = request.view.engine.vhosts
    return _listed(request, [vhosts[name] for name in sorted(vhosts)])


def _list(request: Request, vhost: str) -> Reply:
    return _listed(request, [request.view.vhost(vhost)])


def _get(request: Request, vhost: str, exchange: str) -> Reply:
    engine_vhost = request.view.vhost(vhost)
    shown = _show(engine_vhost, find_exchange(engine_vhost, exchange)) | {"incoming": [], "outgoing": []}
    return found(chosen(shown, request.query))


def _put(request: Request, vhost: str, exchange: str) -> Reply:
    fields = request.fields()
    name = short(exchange_name(exchange), "exchange")
    is_new = name not in request.view.vhost_for_command(vhost).exchanges
    with request.view.channel(vhost, request.user) as channel:
        channel.declare_exchange(
            name,
            text(fields, "type", "direct"),
            durable=flag(fields, "durable"),
            auto_delete=flag(fields, "auto_delete"),
            internal=flag(fields, "internal"),
            arguments=table(fields, "arguments"),
        )
    return made(new=is_new)


def _delete(request: Request, vhost: str, exchange: str) -> Reply:
    name = find_exchange(request.view.vhost(vhost), exchange).name
    with request.view.channel(vhost, request.user) as channel:
        channel.delete_exchange(name, if_unused=request.query.get("if-unused") == "true")
    return done()
