"""Applies a topology over AMQP: declares what is missing, and touches nothing that exists and differs.

First every object is inspected: a passive declare says whether it exists, and declaring an existing one with the wanted
settings changes nothing and says with 406 which of them differs. If anything differs, nothing at all is declared. AMQP
can't list bindings: the caller may give those that exist; otherwise which are missing is not known, and not reported.
Binding again what is bound is harmless, so all bindings are made every time.

What AMQP can't do is not done, and is reported: policies and vhosts need the management API.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from redrive.client import (
    AccessRefused,
    Channel,
    ChannelClosed,
    Client,
    PreconditionFailed,
    ResourceLocked,
    read_argument_mismatch,
)
from redrive.core import InvalidDeclaration, RedriveError, Severity
from redrive.deploy.order import bindings_in_order, exchanges_in_order, queues_in_order
from redrive.inspection import Inspector
from redrive.topology import Binding, BrokerVersion, DestinationType, Exchange, Queue, Topology, check_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An object that exists and is not as the file says: which setting differs, and its value on each side.

    RabbitMQ reports only the first setting that differs. Where this user may not configure the object (`is_forbidden`),
    `argument` is empty and `found` has the reason.
    """

    address: str
    argument: str
    wanted: str
    found: str
    is_forbidden: bool = False
    queue: str | None = None
    """The name, where it is a queue."""

    @property
    def is_about_dead_lettering(self) -> bool:
        """Whether it is the dead-letter exchange or key that differs."""
        return self.argument in ("x-dead-letter-exchange", "x-dead-letter-routing-key")

    @property
    def text(self) -> str:
        """The difference as one line."""
        if not self.argument:
            return f"{self.address}: {self.found}"
        found, wanted = self.found or '""', self.wanted or '""'
        return f"{self.address}: {self.argument} is {found} on the broker and {wanted} in the file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What a broker lacks and what it has differently; `left_out` is what AMQP can't apply.

    `missing_bindings` is None where the existing bindings are not known, and there are some to make.
    """

    missing_exchanges: tuple[Exchange, ...]
    missing_queues: tuple[Queue, ...]
    missing_bindings: tuple[Binding, ...] | None
    differences: tuple[Difference, ...]
    left_out: tuple[str, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """The addresses of what is known to be missing, in the order in which it is declared."""
        exchanges = (one.address for one in self.missing_exchanges)
        queues = (one.address for one in self.missing_queues)
        return (*exchanges, *queues, *(one.address for one in self.missing_bindings or ()))


class ApplyFailed(RedriveError):
    """An object could not be declared; `declared` were, before it. `is_forbidden`: the user lacks a right."""

    def __init__(self, address: str, reason: str, declared: tuple[str, ...], *, is_forbidden: bool = False) -> None:
        self.address = address
        self.reason = reason
        self.declared = declared
        self.is_forbidden = is_forbidden
        super().__init__(f"{address}: {reason}")


async def inspect(client: Client, topology: Topology, *, bound: Collection[Binding] | None = None) -> Inspection:
    """Compares a topology of one vhost with the broker's. Declares nothing.

    `bound` are the broker's bindings; None: they are not known.

    Raises `ClientError`, and `InvalidDeclaration` for what this broker's version would ignore or lose.
    """
    version = BrokerVersion.of((await client.connection()).server_version)
    unfit = [one for one in check_for(topology, version) if one.severity is Severity.ERROR]
    if unfit:
        raise InvalidDeclaration(unfit)
    probe = _Probe(client)
    missing_exchanges = [one for one in exchanges_in_order(topology) if await probe.exchange_is_missing(one)]
    missing_queues = [one for one in queues_in_order(topology) if await probe.queue_is_missing(one)]
    await probe.close()
    bindings = bindings_in_order(topology)
    # Nothing can be bound to what does not exist.
    absent = {one.name for one in missing_exchanges}, {one.name for one in missing_queues}
    is_known = bound is not None or all(_leads_nowhere(one, *absent) for one in bindings)
    return Inspection(
        missing_exchanges=tuple(missing_exchanges),
        missing_queues=tuple(missing_queues),
        missing_bindings=tuple(one for one in bindings if one not in (bound or ())) if is_known else None,
        differences=tuple(probe.differences),
        left_out=tuple(one.address for one in topology.policies),
    )


def _leads_nowhere(binding: Binding, exchanges: Collection[str], queues: Collection[str]) -> bool:
    targets = exchanges if binding.destination_type is DestinationType.EXCHANGE else queues
    return binding.source in exchanges or binding.destination in targets


async def apply(client: Client, topology: Topology, inspection: Inspection) -> tuple[str, ...]:
    """Declares what was missing, then binds; returns the addresses of what was declared, and of the bindings that are
    known to be new.

    Raises `ApplyFailed` if the broker refuses an object: what was declared before it stays, which is safe, because
    entrances are bound last.
    """
    declared: list[str] = []
    channel = await client.channel()
    address = ""
    try:
        for exchange in inspection.missing_exchanges:
            address = exchange.address
            await _declare_exchange(channel, exchange)
            declared.append(address)
        for queue in inspection.missing_queues:
            address = queue.address
            await _declare_queue(channel, queue)
            declared.append(address)
        for binding in bindings_in_order(topology):
            address = binding.address
            if binding.destination_type is DestinationType.EXCHANGE:
                await channel.bind_exchange(
                    binding.destination, binding.source, binding.routing_key, binding.arguments.thaw()
                )
            else:
                await channel.bind_queue(
                    binding.destination, binding.source, binding.routing_key, binding.arguments.thaw()
                )
    except AccessRefused as error:
        raise ApplyFailed(address, _forbidden(client.target.user, error), tuple(declared), is_forbidden=True) from None
    except ChannelClosed as error:
        raise ApplyFailed(address, str(error), tuple(declared)) from None
    await channel.close()
    return (*declared, *(one.address for one in inspection.missing_bindings or ()))


class _Probe:
    """Looks at one object after another, and notes what differs."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inspector = Inspector(client)
        self.differences: list[Difference] = []

    async def exchange_is_missing(self, exchange: Exchange) -> bool:
        try:
            if not await self._inspector.has_exchange(exchange.name, exchange.type):
                return True
            await _declare_exchange(await self._inspector.channel(), exchange)
        except ChannelClosed as error:
            self._differs(exchange, error)
        return False

    async def queue_is_missing(self, queue: Queue) -> bool:
        try:
            if await self._inspector.queue_state(queue.name) is None:
                return True
            await _declare_queue(await self._inspector.channel(), queue)
        except ChannelClosed as error:
            self._differs(queue, error)
        return False

    async def close(self) -> None:
        await self._inspector.close()

    def _differs(self, object: Exchange | Queue, error: ChannelClosed) -> None:
        address = object.address
        match error:
            case PreconditionFailed():
                found = read_difference(address, error.text)
            case ResourceLocked():
                found = Difference(address=address, argument="", wanted="", found="is exclusive to another connection")
            case AccessRefused():
                reason = f"user {self._client.target.user} may not configure it"
                found = Difference(address=address, argument="", wanted="", found=reason, is_forbidden=True)
            case _:
                found = Difference(address=address, argument="", wanted="", found=str(error))
        self.differences.append(replace(found, queue=object.name if isinstance(object, Queue) else None))


def read_difference(address: str, text: str) -> Difference:
    """The broker's 406 as a difference; its own text where it names no argument."""
    mismatch = read_argument_mismatch(text)
    if mismatch is None:
        return Difference(address=address, argument="", wanted="", found=text)
    return Difference(address=address, argument=mismatch.name, wanted=mismatch.wanted_text, found=mismatch.text)


def _forbidden(user: str, error: AccessRefused) -> str:
    """Since 4.0 the broker says which right is missing, and on what: binding takes rights on both ends."""
    right = re.search(r"\b(configure|write|read) access to", error.text)
    what = f"{error.object_kind} {error.object_name}" if error.object_kind else "it"
    return f"user {user} may not {right[1]} {what}" if right else f"user {user} lacks a right on {what}"


async def _declare_exchange(channel: Channel, exchange: Exchange) -> None:
    await channel.declare_exchange(
        exchange.name,
        exchange.type,
        durable=exchange.durable,
        auto_delete=exchange.auto_delete,
        internal=exchange.internal,
        arguments=exchange.arguments.thaw(),
    )


async def _declare_queue(channel: Channel, queue: Queue) -> None:
    # The type is always given: left out, a vhost's default queue type would make a classic queue a quorum one, without
    # the delivery limits that keep it from dropping messages. To an existing queue absent and classic are the same.
    arguments = {"x-queue-type": queue.type, **queue.arguments.thaw()}
    await channel.declare_queue(queue.name, durable=queue.durable, auto_delete=queue.auto_delete, arguments=arguments)
