"""Queues: list, declare, delete, purge. Depths are of this moment, not seconds old as RabbitMQ's are."""

from redrive.embedded.engine import Engine
from redrive.embedded.engine.queues import Queue
from redrive.embedded.engine.ready_messages import QuorumStrictOrder
from redrive.embedded.engine.streams import Stream
from redrive.embedded.management.broker_view import NODE, BrokerView
from redrive.embedded.management.connections import show_consumer
from redrive.embedded.management.json_values import to_json
from redrive.embedded.management.pagination import chosen, listed
from redrive.embedded.management.policies import policy_name
from redrive.embedded.management.replies import JSON, Reply, bad_request, done, found, made, object_not_found
from redrive.embedded.management.request_fields import flag, short, table
from redrive.embedded.management.routes import Request, Routes


def add_routes(routes: Routes) -> None:
    """The routes of queues."""
    routes.add("queues", get=_list_all)
    routes.add("queues/{vhost}", get=_list)
    routes.add("queues/{vhost}/{queue}", get=_get, put=_put, delete=_delete)
    routes.add("queues/{vhost}/{queue}/contents", delete=_purge)


def shown_arguments(queue: Queue) -> dict[str, JSON]:
    """A queue's arguments as this version shows them: 4.x adds the type if it was left out."""
    arguments = {key: to_json(value) for key, value in sorted(queue.arguments.items())}
    if queue.engine.profile.fills_in_queue_type:
        arguments.setdefault("x-queue-type", queue.kind)
    return arguments


def _show(view: BrokerView, queue: Queue, unacked_bytes: dict[int, int], *, alone: bool = False) -> dict[str, JSON]:
    vhost, unacked = queue.vhost, unacked_bytes.get(id(queue), 0)
    active = queue.consumers.active
    ready = queue.ready_bytes + sum(queue.size_of(entry.message) for entry in queue.delayed)
    held = (
        0
        if queue.held_dead_letters is None
        else sum(queue.size_of(entry.message) for entry in queue.held_dead_letters.entries())
    )
    if isinstance(queue, Stream):
        ready, unacked = queue.stored_bytes, 0
    shown: dict[str, JSON] = {
        "arguments": shown_arguments(queue),
        "auto_delete": queue.auto_delete,
        "consumers": len(queue.consumers),
        "durable": queue.durable,
        "effective_policy_definition": to_json(vhost.policies.definition(queue.name, queue.kind)),
        "exclusive": queue.owner is not None,
        "message_bytes": ready + unacked + held,
        "message_bytes_ready": ready,
        "message_bytes_unacknowledged": unacked,
        "messages": queue.stored,
        "messages_ready": queue.stored if queue.is_stream else len(queue.ready),
        "messages_unacknowledged": 0 if queue.is_stream else queue.unacked_count,
        "name": queue.name,
        "node": NODE,
        "operator_policy": policy_name(vhost, queue.name, queue.kind, operator=True),
        "policy": policy_name(vhost, queue.name, queue.kind, operator=False),
        "single_active_consumer_tag": None if active is None else active.tag,
        "state": "running",
        "type": queue.kind,
        "vhost": vhost.name,
    }
    if queue.is_stream:
        shown |= {"leader": NODE, "members": [NODE], "online": [NODE], "readers": {NODE: len(queue.consumers)}}
        for key in (
            "message_bytes",
            "message_bytes_ready",
            "message_bytes_unacknowledged",
            "single_active_consumer_tag",
        ):
            del shown[key]
    elif queue.is_quorum:
        shown |= {
            "leader": NODE,
            "members": [NODE],
            "online": [NODE],
            "messages_dlx": queue.held_count,
            "message_bytes_dlx": held,
        }
        if view.api_profile.shows_quorum_details:
            shown |= {
                "delayed_retry": _delayed_retry(queue),
                "delivery_limit": "unlimited"
                if queue.settings.delivery_limit is None
                else queue.settings.delivery_limit,
                "messages_delayed": len(queue.delayed),
                **_by_priority(queue),
                **_delayed_moments(queue),
            }
    else:
        owner = next((one.tag for one in queue.consumers.all if one.exclusive), None)
        shown["exclusive_consumer_tag"] = owner
    if alone:
        names = {client.connection: client for client in view.clients()}
        details = [show_consumer(one, names.get(one.channel.connection)) for one in queue.consumers.all]
        shown |= {"consumer_details": details, "deliveries": [], "incoming": []}
    return shown


def _listed(request: Request, queues: list[Queue]) -> Reply:
    unacked_bytes = _unacked_bytes(request.view.engine)
    ordered = sorted(queues, key=lambda queue: (queue.vhost.name, queue.name))
    return listed([_show(request.view, queue, unacked_bytes) for queue in ordered], request.query)


def _list_all(request: Request) -> Reply:
    return _listed(request, request.view.engine.queues())


def _list(request: Request, vhost: str) -> Reply:
    return _listed(request, list(request.view.vhost(vhost).queues.values()))


def _get(request: Request, vhost: str, queue: str) -> Reply:
    view = request.view
    one = _found(view, vhost, queue)
    return found(chosen(_show(view, one, _unacked_bytes(view.engine), alone=True), request.query))


def _put(request: Request, vhost: str, queue: str) -> Reply:
    fields = request.fields()
    if fields.get("node", NODE) != NODE:
        raise bad_request(f"Node {fields['node']} is not a cluster member")
    is_new = queue not in request.view.vhost_for_command(vhost).queues
    with request.view.channel(vhost, request.user) as channel:
        channel.declare_queue(
            short(queue, "queue"),
            durable=flag(fields, "durable"),
            auto_delete=flag(fields, "auto_delete"),
            arguments=table(fields, "arguments"),
        )
    return made(new=is_new)


def _delete(request: Request, vhost: str, queue: str) -> Reply:
    _found(request.view, vhost, queue)
    with request.view.channel(vhost, request.user) as channel:
        channel.delete_queue(
            queue,
            if_unused=request.query.get("if-unused") == "true",
            if_empty=request.query.get("if-empty") == "true",
        )
    return done()


def _purge(request: Request, vhost: str, queue: str) -> Reply:
    _found(request.view, vhost, queue)
    with request.view.channel(vhost, request.user) as channel:
        channel.purge_queue(queue)
    return done()


def _delayed_retry(queue: Queue) -> str:
    """As 4.3 words it."""
    settings = queue.settings
    if settings.delayed_retry == "disabled":
        return settings.delayed_retry
    most = "" if settings.delayed_max_ms is None else f", max: {settings.delayed_max_ms}ms"
    return f"{settings.delayed_retry} (min: {settings.delayed_min_ms}ms{most})"


def _by_priority(queue: Queue) -> dict[str, JSON]:
    """The ready messages of a quorum queue of 4.3, by priority, and how many of them were requeued."""
    ready = queue.ready
    assert isinstance(ready, QuorumStrictOrder)
    counts: dict[str, JSON] = {str(priority): count for priority, count in ready.count_by_priority().items()}
    return {
        "messages_active_priorities": len(counts),
        "messages_by_priority": counts,
        "messages_ready_returned": ready.requeued,
    }


def _delayed_moments(queue: Queue) -> dict[str, JSON]:
    """When the first and the last delayed message are due; empty without delayed messages."""
    if not queue.delayed:
        return {}
    return {"next_delayed_at": queue.delayed.next_ms, "last_delayed_at": queue.delayed.last_ms}


def _found(view: BrokerView, vhost: str, name: str) -> Queue:
    queue = view.vhost(vhost).queues.get(name)
    if queue is None:
        raise object_not_found()
    return queue


def _unacked_bytes(engine: Engine) -> dict[int, int]:
    """The unacked bytes of each queue, by the queue's `id`."""
    held: dict[int, int] = {}
    for connection in engine.connections:
        for channel in connection.channels.values():
            for entry, queue, _ in channel.unacked.values():
                held[id(queue)] = held.get(id(queue), 0) + queue.size_of(entry.message)
    return held
