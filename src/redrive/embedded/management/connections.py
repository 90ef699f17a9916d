"""Who is connected: connections, channels, consumers. Only what the engine and the sockets know is told."""

from redrive.embedded.engine.consumers import Consumer
from redrive.embedded.management.house import NODE, Client, House
from redrive.embedded.management.json_values import to_json
from redrive.embedded.management.listing import chosen, listed
from redrive.embedded.management.replies import JSON, Reply, done, found, object_not_found
from redrive.embedded.management.routes import Request, Routes


def add_routes(routes: Routes) -> None:
    """The addresses of connections, channels and consumers."""
    routes.add("connections", get=_list_connections)
    routes.add("connections/{name}", get=_get_connection, delete=_close_connection)
    routes.add("connections/{name}/channels", get=_list_channels)
    routes.add("vhosts/{vhost}/connections", get=_list_connections)
    routes.add("channels", get=_list_channels)
    routes.add("channels/{channel}", get=_get_channel)
    routes.add("vhosts/{vhost}/channels", get=_list_channels)
    routes.add("consumers", get=_list_consumers)
    routes.add("consumers/{vhost}", get=_list_consumers)


def show_consumer(consumer: Consumer, client: Client | None) -> dict[str, JSON]:
    """A consumer; `client` is None for one whose socket is going just now."""
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


def _show(client: Client) -> dict[str, JSON]:
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


def _show_channels(client: Client) -> list[dict[str, JSON]]:
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


def _clients(house: House, vhost: str | None) -> list[Client]:
    wanted = None if vhost is None else house.vhost(vhost)
    return [client for client in house.clients() if wanted is None or client.connection.vhost is wanted]


def _list_connections(request: Request, vhost: str | None = None) -> Reply:
    return listed([_show(client) for client in _clients(request.house, vhost)], request.query)


def _get_connection(request: Request, name: str) -> Reply:
    return found(chosen(_show(_named(request.house, name)), request.query))


def _close_connection(request: Request, name: str) -> Reply:
    client = _named(request.house, name)
    request.house.close(client.connection, request.headers.get("x-reason", "Closed via management plugin"))
    return done()


def _named(house: House, name: str) -> Client:
    for client in house.clients():
        if client.name == name:
            return client
    raise object_not_found()


def _list_channels(request: Request, vhost: str | None = None, name: str | None = None) -> Reply:
    clients = _clients(request.house, vhost) if name is None else [_named(request.house, name)]
    return listed([channel for client in clients for channel in _show_channels(client)], request.query)


def _get_channel(request: Request, channel: str) -> Reply:
    for client in request.house.clients():
        for shown in _show_channels(client):
            if shown["name"] == channel:
                return found(chosen(shown, request.query))
    raise object_not_found()


def _list_consumers(request: Request, vhost: str | None = None) -> Reply:
    shown = [
        show_consumer(consumer, client)
        for client in _clients(request.house, vhost)
        for channel in client.connection.channels.values()
        for consumer in channel.consumers.values()
    ]
    return listed(shown, request.query)
