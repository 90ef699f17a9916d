"""Connections, channels and consumers, as far as the engine and the sockets know them."""

from redrive.embedded.engine.consumers import Consumer
from redrive.embedded.management.broker_view import NODE, BrokerView, ClientConnection
from redrive.embedded.management.json_values import to_json
from redrive.embedded.management.pagination import chosen, listed
from redrive.embedded.management.replies import JSON, Reply, done, found, object_not_found
from redrive.embedded.management.routes import Request, Routes


def add_routes(routes: Routes) -> None:
    """The routes of connections, channels and consumers."""
    routes.add("connections", get=_list_connections)
    routes.add("connections/{name}", get=_get_connection, delete=_close_connection)
    routes.add("connections/{name}/channels", get=_list_channels)
    routes.add("vhosts/{vhost}/connections", get=_list_connections)
    routes.add("channels", get=_list_channels)
    routes.add("channels/{channel}", get=_get_channel)
    routes.add("vhosts/{vhost}/channels", get=_list_channels)
    routes.add("consumers", get=_list_consumers)
    routes.add("consumers/{vhost}", get=_list_consumers)


def show_consumer(consumer: Consumer, client: ClientConnection | None) -> dict[str, JSON]:
    """A consumer; `client` is None if its connection is being closed."""
    channel, queue = consumer.channel, consumer.queue
    name = "" if client is None else client.name
    single = queue.consumers.single_active
    active = not single or queue.consumers.active is consumer
    return {
        "arguments": {} if client is None else to_json(client.arguments_of(channel.number, consumer.tag)),
        "ack_required": not consumer.no_ack,
        "active": active,
        "activity_status": ("single_active" if active else "waiting") if single else "up",
        "channel_details": {
            "connection_name": name,
            "name": f"{name} ({channel.number})",
            "node": NODE,
            "number": channel.number,
            "peer_host": "" if client is None else client.peer_host,
            "peer_port": 0 if client is None else client.peer_port,
            "user": channel.connection.user,
        },
        "consumer_tag": consumer.tag,
        "exclusive": consumer.exclusive,
        "prefetch_count": consumer.prefetch,
        "queue": {"name": queue.name, "vhost": queue.vhost.name},
    }


def _show(client: ClientConnection) -> dict[str, JSON]:
    connection = client.connection
    return {
        "channel_max": client.channel_max,
        "channels": len(connection.channels),
        "client_properties": to_json(client.properties),
        "frame_max": client.frame_max,
        "host": client.host,
        "name": client.name,
        "node": NODE,
        "peer_host": client.peer_host,
        "peer_port": client.peer_port,
        "port": client.port,
        "protocol": "AMQP 0-9-1",
        "ssl": False,
        "state": "running",
        "timeout": client.heartbeat_s,
        "type": "network",
        "user": connection.user,
        "vhost": connection.vhost.name,
    }


def _show_channels(client: ClientConnection) -> list[dict[str, JSON]]:
    details = {"name": client.name, "peer_host": client.peer_host, "peer_port": client.peer_port}
    return [
        {
            "connection_details": details,
            "acks_uncommitted": 0 if channel.transaction is None else len(channel.transaction.settlements),
            "confirm": channel.confirms,
            "consumer_count": len(channel.consumers),
            "global_prefetch_count": channel.shared_prefetch,
            "messages_unacknowledged": len(channel.unacked),
            "messages_uncommitted": 0 if channel.transaction is None else len(channel.transaction.publishes),
            "messages_unconfirmed": 0,
            "name": f"{client.name} ({number})",
            "node": NODE,
            "number": number,
            "prefetch_count": channel.prefetch,
            "state": "running",
            "transactional": channel.transaction is not None,
            "user": client.connection.user,
            "vhost": client.connection.vhost.name,
        }
        for number, channel in sorted(client.connection.channels.items())
    ]


def _clients(view: BrokerView, vhost: str | None) -> list[ClientConnection]:
    wanted = None if vhost is None else view.vhost(vhost)
    return [client for client in view.clients() if wanted is None or client.connection.vhost is wanted]


def _list_connections(request: Request, vhost: str | None = None) -> Reply:
    return listed([_show(client) for client in _clients(request.view, vhost)], request.query)


def _get_connection(request: Request, name: str) -> Reply:
    return found(chosen(_show(_named(request.view, name)), request.query))


def _close_connection(request: Request, name: str) -> Reply:
    client = _named(request.view, name)
    request.view.close(client.connection, request.headers.get("x-reason", "Closed via management plugin"))
    return done()


def _named(view: BrokerView, name: str) -> ClientConnection:
    for client in view.clients():
        if client.name == name:
            return client
    raise object_not_found()


def _list_channels(request: Request, vhost: str | None = None, name: str | None = None) -> Reply:
    clients = _clients(request.view, vhost) if name is None else [_named(request.view, name)]
    return listed([channel for client in clients for channel in _show_channels(client)], request.query)


def _get_channel(request: Request, channel: str) -> Reply:
    for client in request.view.clients():
        for shown in _show_channels(client):
            if shown["name"] == channel:
                return found(chosen(shown, request.query))
    raise object_not_found()


def _list_consumers(request: Request, vhost: str | None = None) -> Reply:
    shown = [
        show_consumer(consumer, client)
        for client in _clients(request.view, vhost)
        for channel in client.connection.channels.values()
        for consumer in channel.consumers.values()
    ]
    return listed(shown, request.query)
