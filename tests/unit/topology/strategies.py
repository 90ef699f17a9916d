"""Random topologies and random JSON, for properties that must hold for all of them."""

from typing import Any

from hypothesis import strategies as st

from redrive.topology import (
    Arguments,
    Binding,
    DestinationType,
    Exchange,
    ExchangeType,
    Policy,
    Queue,
    QueueType,
    Topology,
    Vhost,
)

LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
"""Every character a file can hold: no half surrogates, no NUL."""

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(LETTERS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(LETTERS, max_size=12), inner, max_size=4),
    max_leaves=12,
)

names = st.text(LETTERS, min_size=1, max_size=12).filter(lambda name: not name.startswith("amq."))
vhost_names = st.sampled_from(["/", "billing", "a b"])

_argument_names = st.sampled_from(
    ["x-message-ttl", "x-dead-letter-exchange", "x-max-length", "x-overflow", "x-delivery-limit", "x-made-up"]
)
_argument_values = st.booleans() | st.integers(-5, 2**40) | st.text(LETTERS, max_size=8) | json_values
arguments = st.dictionaries(_argument_names | st.text(LETTERS, max_size=8), _argument_values, max_size=4).map(Arguments)


@st.composite
def queues(draw: st.DrawFn) -> Queue:
    """A queue of any type with any arguments, sensible or not."""
    said = dict(draw(arguments))
    said.pop("x-queue-type", None)
    kind = draw(st.sampled_from([None, *QueueType]))
    return Queue(
        name=draw(names),
        vhost=draw(vhost_names),
        durable=draw(st.booleans()),
        auto_delete=draw(st.booleans()),
        arguments=Arguments(said if kind is None else {"x-queue-type": kind.value, **said}),
    )


exchanges = st.builds(
    Exchange,
    name=names,
    type=st.sampled_from([*(one.value for one in ExchangeType), "x-delayed-message"]),
    vhost=vhost_names,
    durable=st.booleans(),
    auto_delete=st.booleans(),
    internal=st.booleans(),
    arguments=arguments,
)
bindings = st.builds(
    Binding,
    source=names,
    destination=names,
    destination_type=st.sampled_from(DestinationType),
    routing_key=st.text(LETTERS, max_size=12),
    vhost=vhost_names,
    arguments=arguments,
)
policies = st.builds(
    Policy,
    name=names,
    pattern=st.text(LETTERS, max_size=12),
    definition=arguments,
    apply_to=st.sampled_from(["all", "queues", "exchanges", "quorum_queues"]),
    priority=st.integers(-5, 5) | st.just(1.5),
    operator=st.booleans(),
    vhost=vhost_names,
)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Any topology that names each object once and each of its vhosts."""
    drawn_exchanges = draw(st.lists(exchanges, max_size=3, unique_by=lambda one: (one.vhost, one.name)))
    drawn_queues = draw(st.lists(queues(), max_size=4, unique_by=lambda one: (one.vhost, one.name)))
    drawn_bindings = draw(st.lists(bindings, max_size=3, unique=True))
    drawn_policies = draw(st.lists(policies, max_size=3, unique_by=lambda one: (one.vhost, one.name, one.operator)))
    used = {one.vhost for one in drawn_exchanges} | {one.vhost for one in drawn_queues}
    used |= {one.vhost for one in drawn_bindings} | {one.vhost for one in drawn_policies}
    kinds = draw(st.lists(st.sampled_from([None, "quorum"]), min_size=len(used), max_size=len(used)))
    return Topology(
        vhosts=tuple(Vhost(name=name, default_queue_type=kind) for name, kind in zip(sorted(used), kinds, strict=True)),
        exchanges=tuple(drawn_exchanges),
        queues=tuple(drawn_queues),
        bindings=tuple(drawn_bindings),
        policies=tuple(drawn_policies),
    )
