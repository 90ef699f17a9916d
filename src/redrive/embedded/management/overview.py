"""The overview: versions, totals, health. Rates and machine figures are left out: the embedded broker has none."""

from redrive.embedded.management.broker_view import NODE, BrokerView
from redrive.embedded.management.pagination import chosen
from redrive.embedded.management.replies import JSON, Reply, found
from redrive.embedded.management.routes import Request, Routes

_EXCHANGE_TYPES = ("direct", "fanout", "headers", "topic")


def add_routes(routes: Routes) -> None:
    """The routes about the broker as a whole."""
    routes.add("overview", get=lambda request: found(chosen(_overview(request.view), request.query)))
    routes.add("cluster-name", get=lambda _request: found({"name": NODE}))
    routes.add("nodes", get=lambda request: found([chosen(_node(request.view), request.query)]))
    routes.add("extensions", get=lambda _request: found([]))
    routes.add("healthchecks/node", get=_healthy)
    routes.add("aliveness-test/{vhost}", get=_alive)
    routes.add("health/checks/alarms", get=lambda request: _alarms(request.view, "in the cluster"))
    routes.add("health/checks/local-alarms", get=lambda request: _alarms(request.view, "on the node"))
    for check in ("virtual-hosts", "node-is-quorum-critical"):
        routes.add(f"health/checks/{check}", get=_healthy)


def _overview(view: BrokerView) -> dict[str, JSON]:
    profile, engine = view.engine.profile, view.engine
    queues = engine.queues()
    streamed = sum(one.stored for one in queues if one.is_stream)
    ready = streamed + sum(len(one.ready) for one in queues)
    unacked = sum(one.unacked_count for one in queues if not one.is_stream)
    waiting = sum(len(one.delayed) + one.held_count for one in queues)
    clients = view.clients()
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
            "messages": ready + unacked + waiting,
            "messages_ready": ready,
            "messages_unacknowledged": unacked,
        },
        "object_totals": totals,
        "node": NODE,
        "listeners": [
            {"node": NODE, "protocol": "amqp", "ip_address": view.broker.host, "port": view.broker.port, "tls": False}
        ],
        "contexts": [],
    }


def _node(view: BrokerView) -> dict[str, JSON]:
    return {
        "name": NODE,
        "type": "disc",
        "running": True,
        "partitions": [],
        "mem_alarm": view.broker.blocked is not None,
        "disk_free_alarm": False,
        "rates_mode": "none",
        "exchange_types": [{"name": name, "enabled": True} for name in _EXCHANGE_TYPES],
        "applications": [{"name": "rabbit", "description": "RabbitMQ", "version": view.engine.profile.server_version}],
    }


def _alarms(view: BrokerView, where: str) -> Reply:
    if view.broker.blocked is None:
        return found({"status": "ok"})
    alarms = [{"node": NODE, "resource": "memory"}]
    reason = f"There are alarms in effect {where}"
    return Reply(status=503, content={"status": "failed", "reason": reason, "alarms": alarms})


def _healthy(_request: Request) -> Reply:
    return found({"status": "ok"})


def _alive(request: Request, vhost: str) -> Reply:
    request.view.vhost(vhost)
    return found({"status": "ok"})
