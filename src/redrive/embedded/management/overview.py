"""The broker at a glance: versions, totals, health. Rates and machine figures are left out: nobody measures them."""

from redrive.embedded.management.house import NODE, House
from redrive.embedded.management.listing import chosen
from redrive.embedded.management.replies import JSON, Reply, found
from redrive.embedded.management.routes import Request, Routes

_EXCHANGE_TYPES = ("direct", "fanout", "headers", "topic")


def add_routes(routes: Routes) -> None:
    """The addresses about the broker as a whole."""
    routes.add("overview", get=lambda request: found(chosen(_overview(request.house), request.query)))
    routes.add("cluster-name", get=lambda _request: found({"name": NODE}))
    routes.add("nodes", get=lambda request: found([chosen(_node(request.house), request.query)]))
    routes.add("extensions", get=lambda _request: found([]))
    routes.add("healthchecks/node", get=_healthy)
    routes.add("aliveness-test/{vhost}", get=_alive)
    routes.add("health/checks/alarms", get=lambda request: _alarms(request.house, "in the cluster"))
    routes.add("health/checks/local-alarms", get=lambda request: _alarms(request.house, "on the node"))
    for check in ("virtual-hosts", "node-is-quorum-critical"):
        routes.add(f"health/checks/{check}", get=_healthy)


def _overview(house: House) -> dict[str, JSON]:
    profile, engine = house.engine.profile, house.engine
    queues = engine.queues()
    streamed = sum(one.stored for one in queues if one.is_stream)
    ready = streamed + sum(len(one.ready) for one in queues)
    in_hand = sum(one.in_hand for one in queues if not one.is_stream)
    waiting = sum(len(one.delayed) + one.held for one in queues)
    clients = house.clients()
    totals = {
        "channels": sum(len(one.connection.channels) for one in clients),
        "connections": len(clients),
        "consumers": sum(len(one.consumers) for one in queues),
        "exchanges": sum(len(vhost.exchanges) for vhost in engine.vhosts.values()),
        "queues": len(queues),
    }
    return {
        "management_version": profile.server_version,
        "rates_mode": "none",
        "exchange_types": [{"name": name, "enabled": True} for name in _EXCHANGE_TYPES],
        "product_version": profile.server_version,
        "product_name": "RabbitMQ",
        "rabbitmq_version": profile.server_version,
        "cluster_name": NODE,
        "erlang_version": profile.platform.removeprefix("Erlang/OTP "),
        "embedded": "redrive",
        "disable_stats": False,
        "enable_queue_totals": False,
        "message_stats": {},
        "queue_totals": {
            "messages": ready + in_hand + waiting,
            "messages_ready": ready,
            "messages_unacknowledged": in_hand,
        },
        "object_totals": totals,
        "node": NODE,
        "listeners": [
            {"node": NODE, "protocol": "amqp", "ip_address": house.broker.host, "port": house.broker.port, "tls": False}
        ],
        "contexts": [],
    }


def _node(house: House) -> dict[str, JSON]:
    return {
        "name": NODE,
        "type": "disc",
        "running": True,
        "partitions": [],
        "mem_alarm": house.broker.blocked is not None,
        "disk_free_alarm": False,
        "rates_mode": "none",
        "exchange_types": [{"name": name, "enabled": True} for name in _EXCHANGE_TYPES],
        "applications": [{"name": "rabbit", "description": "RabbitMQ", "version": house.engine.profile.server_version}],
    }


def _alarms(house: House, where: str) -> Reply:
    if house.broker.blocked is None:
        return found({"status": "ok"})
    alarms = [{"node": NODE, "resource": "memory"}]
    reason = f"There are alarms in effect {where}"
    return Reply(status=503, content={"status": "failed", "reason": reason, "alarms": alarms})


def _healthy(_request: Request) -> Reply:
    return found({"status": "ok"})


def _alive(request: Request, vhost: str) -> Reply:
    request.house.vhost(vhost)
    return found({"status": "ok"})
