"""The example topologies, built by hand: what the documents name, and a foreign one with everything else."""

from typing import Any

from redrive.topology.argument_table import Arguments
from redrive.topology.model import Binding, DestinationType, Exchange, Policy, Queue, Topology
from redrive.topology.retry_routes import MoveBy, Parking, RetryRoutes, Wait

Sample = tuple[Topology, tuple[RetryRoutes, ...]]

_SAFE = {"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
_DELAYS = {"30s": 30_000, "5m": 300_000, "30m": 1_800_000}


def queue(name: str, **arguments: Any) -> Queue:
    """A queue; `dead_letter_exchange=…` means `x-dead-letter-exchange`."""
    return Queue(name=name, arguments=Arguments({f"x-{key.replace('_', '-')}": arguments[key] for key in arguments}))


def _queue(name: str, arguments: dict[str, Any]) -> Queue:
    return Queue(name=name, arguments=Arguments(arguments))


def freeflow() -> Sample:
    """`tiered`: seven domains, three delays, one retry exchange, one DLQ."""
    exchanges = [
        Exchange(name="freeflow.events", type="topic"),
        Exchange(name="freeflow.events.retry", type="direct"),
        Exchange(name="freeflow.events.dlx", type="fanout"),
    ]
    queues, bindings, retry_routes = [], [], []
    for domain in ("user", "auth", "alarm", "document", "workflow", "notification", "audit"):
        main = f"freeflow.{domain}"
        queues.append(queue(main, dead_letter_exchange="freeflow.events.dlx"))
        bindings.append(Binding(source="freeflow.events", destination=main, routing_key=f"{domain}.*"))
        waits = []
        for delay, ttl_ms in _DELAYS.items():
            name = f"freeflow.{domain}.retry.{delay}"
            queues.append(
                queue(
                    name,
                    message_ttl=ttl_ms,
                    dead_letter_exchange="freeflow.events",
                    dead_letter_routing_key=f"{domain}.retry",
                )
            )
            key = f"{domain}.{delay}"
            bindings.append(Binding(source="freeflow.events.retry", destination=name, routing_key=key))
            waits.append(Wait(delay_ms=ttl_ms, queue=name, exchange="freeflow.events.retry", routing_key=key))
        retry_routes.append(
            RetryRoutes(
                shape="tiered",
                queue=main,
                attempts=4,
                retry_by=MoveBy.PUBLISH,
                park_by=MoveBy.PUBLISH,
                waits=tuple(waits),
                parking=Parking(queue="freeflow.events.dlq", exchange="freeflow.events.dlx", routing_key=""),
            )
        )
    queues.append(queue("freeflow.events.dlq"))
    bindings.append(Binding(source="freeflow.events.dlx", destination="freeflow.events.dlq"))
    return _topology(exchanges, queues, bindings), tuple(retry_routes)


def event_bus() -> Sample:
    """`service`: three services, each behind its prefix's fanout exchange."""
    exchanges: dict[str, Exchange] = {}
    queues, bindings, retry_routes = [], [], []
    for prefix, service in (("wms", "wms-cincout"), ("xyz", "xyz-service"), ("default", "noprefix")):
        main, retry, dlq = (f"{prefix}.{part}.{service}" for part in ("queue", "retry-queue", "dlq"))
        entry, retries = f"{prefix}.main-exchange", f"{prefix}.retry-exchange.{service}"
        exchanges[entry] = Exchange(name=entry, type="fanout")
        exchanges[retries] = Exchange(name=retries, type="direct")
        queues += [
            queue(main, dead_letter_exchange=retries, dead_letter_routing_key="retry"),
            queue(retry, message_ttl=5000, dead_letter_exchange="", dead_letter_routing_key=main),
            queue(dlq),
        ]
        bindings += [
            Binding(source=entry, destination=main),
            Binding(source=retries, destination=retry, routing_key="retry"),
        ]
        retry_routes.append(
            RetryRoutes(
                shape="service",
                queue=main,
                attempts=11,
                retry_by=MoveBy.REJECT,
                park_by=MoveBy.PUBLISH,
                waits=(Wait(delay_ms=5000, queue=retry, exchange=retries, routing_key="retry"),),
                parking=Parking(queue=dlq, exchange="", routing_key=dlq),
            )
        )
    return _topology(list(exchanges.values()), queues, bindings), tuple(retry_routes)


def file_pipeline() -> Sample:
    """`per-queue`: seven queues, each with its own retry and DLQ exchange."""
    bound = {
        "q.upload.commands": ("domain.commands", ["commands.upload.#", "commands.file.reprocess.*"]),
        "q.validator": ("domain.events", ["files.uploaded.*"]),
        "q.thumbnail": ("domain.events", ["files.validated.*"]),
        "q.extractor": ("domain.events", ["files.validated.*"]),
        "q.projection": ("domain.events", ["#"]),
        "q.notification": ("domain.events", ["processing.#", "files.rejected.*"]),
        "q.audit": ("domain.events", ["#"]),
    }
    exchanges = [Exchange(name="domain.events", type="topic"), Exchange(name="domain.commands", type="topic")]
    queues, bindings, retry_routes = [], [], []
    for main, (source, keys) in bound.items():
        retries, dead = f"retry.{main}", f"dlq.{main}"
        exchanges += [Exchange(name=retries, type="direct"), Exchange(name=dead, type="direct")]
        queues += [
            queue(main, dead_letter_exchange=retries, dead_letter_routing_key="retry"),
            queue(f"{main}.retry", message_ttl=15_000, dead_letter_exchange="", dead_letter_routing_key=main),
            queue(f"{main}.dlq"),
        ]
        bindings += [Binding(source=source, destination=main, routing_key=key) for key in keys]
        bindings += [
            Binding(source=retries, destination=f"{main}.retry", routing_key="retry"),
            Binding(source=dead, destination=f"{main}.dlq", routing_key="parking"),
        ]
        retry_routes.append(
            RetryRoutes(
                shape="per-queue",
                queue=main,
                attempts=3,
                retry_by=MoveBy.REJECT,
                park_by=MoveBy.PUBLISH,
                waits=(Wait(delay_ms=15_000, queue=f"{main}.retry", exchange=retries, routing_key="retry"),),
                parking=Parking(queue=f"{main}.dlq", exchange=dead, routing_key="parking"),
            )
        )
    return _topology(exchanges, queues, bindings), tuple(retry_routes)


def ratatoskr() -> Sample:
    """`quorum`: retry through the default exchange, a fanout exchange in front of the DLQ."""
    main, retry, dlq = "my-service.events", "my-service.events.retry", "my-service.events.dlq"
    exchanges = [Exchange(name="events", type="topic"), Exchange(name=dlq, type="fanout")]
    back = {"x-dead-letter-exchange": ""}
    queues = [
        _queue(main, {**_SAFE, **back, "x-dead-letter-routing-key": retry, "x-delivery-limit": 1_000_000}),
        _queue(
            retry,
            {
                **_SAFE,
                **back,
                "x-dead-letter-routing-key": main,
                "x-message-ttl": 30_000,
                "x-delivery-limit": 1_000_000,
            },
        ),
        _queue(dlq, {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000}),
    ]
    bindings = [
        Binding(source="events", destination=main, routing_key="my-service.#"),
        Binding(source=dlq, destination=dlq),
    ]
    routes = RetryRoutes(
        shape="quorum",
        queue=main,
        attempts=4,
        retry_by=MoveBy.REJECT,
        park_by=MoveBy.PUBLISH,
        waits=(Wait(delay_ms=30_000, queue=retry, exchange="", routing_key=retry),),
        parking=Parking(queue=dlq, exchange=dlq, routing_key=""),
    )
    return _topology(exchanges, queues, bindings), (routes,)


def bookly() -> Sample:
    """`requeue`: retries in place, one DLX."""
    exchanges = [Exchange(name="bookly.events", type="topic"), Exchange(name="bookly.events.dlx", type="topic")]
    queues, bindings, retry_routes = [], [], []
    for main, key in (("bookly.reservations", "reservation.#"), ("bookly.notifications", "notification.#")):
        dlq = f"{main}.dlq"
        queues += [
            queue(main, dead_letter_exchange="bookly.events.dlx", dead_letter_routing_key=dlq),
            queue(dlq),
        ]
        bindings += [
            Binding(source="bookly.events", destination=main, routing_key=key),
            Binding(source="bookly.events.dlx", destination=dlq, routing_key=dlq),
        ]
        retry_routes.append(
            RetryRoutes(
                shape="requeue",
                queue=main,
                attempts=4,
                retry_by=MoveBy.PUBLISH,
                park_by=MoveBy.PUBLISH,
                parking=Parking(queue=dlq, exchange="bookly.events.dlx", routing_key=dlq),
            )
        )
    return _topology(exchanges, queues, bindings), tuple(retry_routes)


def ladder(*names: str) -> Sample:
    """`ladder`: one wait queue per delay, parking that the delivery limit leads to."""
    exchanges = [Exchange(name="domain.events", type="topic")]
    queues, bindings, retry_routes = [], [], []
    for main in names or ("orders",):
        back = {"x-dead-letter-exchange": ""}
        park = {**back, "x-dead-letter-routing-key": f"{main}.parked"}
        queues.append(_queue(main, {**_SAFE, **park, "x-delivery-limit": 20}))
        for delay, ttl_ms in _DELAYS.items():
            wait = {**_SAFE, **back, "x-dead-letter-routing-key": main}
            queues.append(
                _queue(f"{main}.wait.{delay}", {**wait, "x-message-ttl": ttl_ms, "x-delivery-limit": 1_000_000})
            )
        queues.append(_queue(f"{main}.parked", {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000}))
        bindings.append(Binding(source="domain.events", destination=main, routing_key=f"{main}.#"))
        retry_routes.append(
            RetryRoutes(
                shape="ladder",
                queue=main,
                attempts=4,
                retry_by=MoveBy.PUBLISH,
                park_by=MoveBy.PUBLISH,
                waits=tuple(
                    Wait(delay_ms=ttl_ms, queue=f"{main}.wait.{delay}", exchange="", routing_key=f"{main}.wait.{delay}")
                    for delay, ttl_ms in _DELAYS.items()
                ),
                parking=Parking(queue=f"{main}.parked", exchange="", routing_key=f"{main}.parked"),
            )
        )
    return _topology(exchanges, queues, bindings), tuple(retry_routes)


def fifty_queues() -> Sample:
    """Fifty ladders: 250 queues."""
    areas = ("orders", "billing", "shipping", "catalog", "users")
    steps = (
        "created",
        "updated",
        "cancelled",
        "approved",
        "rejected",
        "archived",
        "exported",
        "imported",
        "audited",
        "notified",
    )
    return ladder(*(f"{area}.{step}" for area in areas for step in steps))


def native() -> Sample:
    """`native`: the queue itself delays what is returned to it."""
    delayed = {"x-delayed-retry-type": "failed", "x-delayed-retry-min": 30_000, "x-delayed-retry-max": 300_000}
    park = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.parked", "x-delivery-limit": 4}
    queues = [
        _queue("orders", {**_SAFE, **park, **delayed}),
        _queue("orders.parked", {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000}),
    ]
    bindings = [Binding(source="domain.events", destination="orders", routing_key="orders.#")]
    routes = RetryRoutes(
        shape="native",
        queue="orders",
        attempts=4,
        retry_by=MoveBy.REQUEUE,
        park_by=MoveBy.PUBLISH,
        parking=Parking(queue="orders.parked", exchange="", routing_key="orders.parked"),
    )
    return _topology([Exchange(name="domain.events", type="topic")], queues, bindings), (routes,)


def foreign() -> Sample:
    """Somebody's broker: policies, alternate and headers exchanges, a stream, an orphan, a DLX that is not there."""
    exchanges = [
        Exchange(name="shop", type="topic", arguments=Arguments({"alternate-exchange": "shop.unrouted"})),
        Exchange(name="shop.unrouted", type="fanout"),
        Exchange(name="shop.orders", type="direct", internal=True),
        Exchange(name="documents", type="headers"),
        Exchange(name="dlx", type="direct"),
        Exchange(name="unused", type="x-delayed-message"),
    ]
    queues = [
        queue("orders.new"),
        queue("orders.retry", message_ttl=60_000, dead_letter_exchange="shop", dead_letter_routing_key="order.new"),
        queue("orders.dead"),
        queue("invoices", queue_type="quorum", delivery_limit=5, max_length=10_000),
        queue("pdf", dead_letter_exchange="nowhere"),
        queue("clicks", queue_type="stream"),
        queue("lost-and-found"),
        queue("scratch"),
    ]
    bindings = [
        Binding(
            source="shop",
            destination="shop.orders",
            destination_type=DestinationType.EXCHANGE,
            routing_key="order.#",
        ),
        Binding(source="shop.orders", destination="orders.new", routing_key="order.new"),
        Binding(source="shop.orders", destination="invoices", routing_key="order.paid"),
        Binding(source="shop", destination="clicks", routing_key="click.#"),
        Binding(source="shop", destination="invoices", routing_key="refund.*"),
        Binding(source="shop.unrouted", destination="lost-and-found"),
        Binding(source="documents", destination="pdf", arguments=Arguments({"x-match": "all", "format": "pdf"})),
        Binding(source="dlx", destination="orders.dead", routing_key="dead"),
    ]
    policies = (
        Policy(
            name="dead-letters",
            pattern="^(orders\\.new|invoices)$",
            definition=Arguments({"dead-letter-exchange": "dlx", "dead-letter-routing-key": "dead"}),
            apply_to="queues",
            priority=10,
        ),
        Policy(name="everything", pattern=".*", definition=Arguments({"max-length": 1_000_000}), priority=0),
    )
    return _topology(exchanges, queues, bindings, policies), ()


EXAMPLES = {
    "freeflow": freeflow,
    "event-bus": event_bus,
    "file-pipeline": file_pipeline,
    "ratatoskr": ratatoskr,
    "bookly": bookly,
    "ladder": ladder,
    "native": native,
    "fifty-queues": fifty_queues,
    "foreign": foreign,
}


def _topology(
    exchanges: list[Exchange], queues: list[Queue], bindings: list[Binding], policies: tuple[Policy, ...] = ()
) -> Topology:
    return Topology(exchanges=tuple(exchanges), queues=tuple(queues), bindings=tuple(bindings), policies=policies)
