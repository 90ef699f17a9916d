"""Random topologies: few names, so that everything meets everything, and some names nobody would choose."""

from hypothesis import strategies as st

from redrive.topology.argument_table import Arguments
from redrive.topology.model import Binding, DestinationType, Exchange, Policy, Queue, Topology
from redrive.topology.retry_routes import MoveBy, Parking, RetryRoutes, Wait

HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    "quo\"te's & `ticks`",
    "]]> --> %% #35; |pipe| {x} [y] (z)",
    "two\nlines\ttab \x1b[31m",
    "emoji 🐇👩\u200d🚒",
    "שלום عربي \u202eevil",
    "x" * 255,
    "漢字" * 42,
    "end",
)

_vhosts = st.sampled_from(["/", "/", "/", "other"])
_names = st.sampled_from(["a", "b", "c", "a.retry", "b.dlq", "c.parked", *HOSTILE_NAMES]) | st.text(max_size=12)
_keys = st.sampled_from(["", "a", "b", "a.*", "#", "*.b.#", "a.retry"]) | _names
_exchange_names = st.sampled_from(["", "x", "y", "dlx"]) | _names
_durations_ms = st.sampled_from([0, 1, 30_000, 2**31])
_booleans = st.booleans()


@st.composite
def _queues(draw: st.DrawFn) -> Queue:
    possible = {
        "x-queue-type": st.sampled_from(["classic", "quorum", "stream", "odd"]),
        "x-dead-letter-exchange": _exchange_names,
        "x-dead-letter-routing-key": _keys,
        "x-message-ttl": _durations_ms,
        "x-delivery-limit": st.sampled_from([-1, 0, 20, 1_000_000]),
        "x-delayed-retry-type": st.sampled_from(["failed", "disabled"]),
        "x-max-length": st.just(5),
        "x-overflow": st.sampled_from(["drop-head", "reject-publish"]),
        "x-expires": st.sampled_from([-5, 1000, "soon"]),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(possible)), unique=True, max_size=6))
    return Queue(
        name=draw(_names),
        vhost=draw(_vhosts),
        durable=draw(_booleans),
        arguments=Arguments({key: draw(possible[key]) for key in chosen}),
    )


_exchanges = st.builds(
    Exchange,
    name=_exchange_names,
    vhost=_vhosts,
    type=st.sampled_from(["direct", "topic", "fanout", "headers", "x-odd"]),
    internal=_booleans,
    arguments=st.just(Arguments()) | st.builds(lambda to: Arguments({"alternate-exchange": to}), _exchange_names),
)
_bindings = st.builds(
    Binding,
    source=_exchange_names,
    destination=_names | _exchange_names,
    destination_type=st.sampled_from(DestinationType),
    routing_key=_keys,
    vhost=_vhosts,
)
_policies = st.builds(
    Policy,
    name=_names,
    pattern=st.sampled_from([".*", "^a", "(", "b$"]),
    definition=st.builds(
        lambda to, ttl_ms: Arguments({"dead-letter-exchange": to, "message-ttl": ttl_ms}),
        _exchange_names,
        _durations_ms,
    ),
    apply_to=st.sampled_from(["all", "queues", "exchanges", "quorum_queues", "odd"]),
    priority=st.integers(0, 2),
    operator=_booleans,
    vhost=_vhosts,
)

topologies = st.builds(
    Topology,
    exchanges=st.lists(_exchanges, max_size=6).map(tuple),
    queues=st.lists(_queues(), max_size=10).map(tuple),
    bindings=st.lists(_bindings, max_size=12).map(tuple),
    policies=st.lists(_policies, max_size=3).map(tuple),
)

retry_routes = st.lists(
    st.builds(
        RetryRoutes,
        shape=st.sampled_from(["ladder", "odd"]),
        queue=_names,
        attempts=st.integers(1, 12),
        retry_by=st.sampled_from(MoveBy),
        park_by=st.sampled_from(MoveBy),
        waits=st.lists(
            st.builds(Wait, delay_ms=_durations_ms, queue=_names, exchange=_exchange_names, routing_key=_keys),
            max_size=3,
        ).map(tuple),
        parking=st.builds(Parking, queue=_names, exchange=_exchange_names, routing_key=_keys),
        vhost=_vhosts,
    ),
    max_size=4,
).map(tuple)
