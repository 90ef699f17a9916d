"""Which queues are dead-letter queues: those of a topology, or those of a broker whose names say so. Pure.

Collecting takes messages away, so a wrong guess would take live ones. A topology knows what each queue is for: its main
and wait queues are refused, whatever a pattern matches. A broker alone knows names, arguments and bindings. There a
queue counts as live, and is refused, if one of these holds:

    it has a dead-letter exchange of its own        where its messages go when they fail or, with a TTL, after a time
    an exchange that is not for dead letters        somebody publishes new messages to it
        is bound to it
    it has consumers, and no dead-letter name       somebody handles its messages

The depth does not tell a main queue whose consumers are away at the moment from a dead-letter queue. So a refused queue
is only collected when it is named exactly, not by a pattern, and confirmed (`forced`).
"""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from redrive.core import Finding, Severity
from redrive.management import QueueInfo
from redrive.topology import (
    Binding,
    BrokerVersion,
    DeclaredQueue,
    DestinationType,
    PolicyMatcher,
    QueueRole,
    QueueType,
    RetryRoutes,
    Settings,
    Topology,
    build_graph,
    queue_settings,
)

NAME_PATTERNS = (
    "*.dlq",
    "*.DLQ",
    "*-dlq",
    "*_dlq",
    "*.dlq.*",
    "dlq.*",
    "*.dead",
    "*.dead-letter",
    "*.dead-letters",
    "*.deadletter",
    "*.parked",
    "*.parking",
    "*_error",
    "*_skipped",
    "error",
)
"""Usual names of dead-letter queues: of our own shapes, Spring, MassTransit, NServiceBus, and by habit."""

_EXCHANGE_PATTERNS = (*NAME_PATTERNS, "*dlx*", "*DLX*", "*dlq*", "*DLQ*", "*dead*", "*error*", "*skipped*", "*park*")
"""Usual names of exchanges for dead letters to which consumers publish; no queue need dead-letter to them."""
_WILDCARDS = frozenset("*?[")

QUORUM_LIMIT_DEFAULT = 20
"""The delivery limit of a quorum queue of 4.x that has no other (facts on delivery limits)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A dead-letter queue to collect from. `known_queue` is the one queue that parks there, None if not just one."""

    vhost: str
    dlq: str
    known_queue: str | None = None
    service: str | None = None
    observe_only: bool = False
    """Never consumed from."""
    queue_type: str | None = None
    """None: not known, as over AMQP alone."""
    delivery_limit: int | None = None
    """As arguments and policies set it; None: not set, or not known."""

    @property
    def lease_name(self) -> str:
        """The lease that its collector holds."""
        return f"collect:{self.vhost}/{self.dlq}"

    def effective_limit(self, version: BrokerVersion) -> int | None:
        """After how many requeues the broker drops a message, None if never. An unknown type counts as quorum."""
        if self.queue_type not in (None, QueueType.QUORUM):
            return None
        if self.delivery_limit is not None:
            # On 3.10 -1 does not mean unlimited: it discards on the first requeue.
            unlimited = self.delivery_limit < 0 and version >= BrokerVersion.V4_0
            return None if unlimited else max(0, self.delivery_limit)
        return QUORUM_LIMIT_DEFAULT if version >= BrokerVersion.V4_0 else None

    def requeues_to_front(self, version: BrokerVersion) -> bool:
        """Whether requeued messages are delivered first. False also where that is not known."""
        if self.queue_type == QueueType.CLASSIC:
            return True
        return self.queue_type == QueueType.QUORUM and self.effective_limit(version) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSelection:
    """The queues to collect from, and findings about them: an error is a queue that was refused."""

    sources: tuple[Source, ...]
    findings: tuple[Finding, ...] = ()
    depths: dict[str, int] = field(default_factory=dict)
    """How many messages are in each, where that is known."""

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """The findings of queues that were refused."""
        return tuple(one for one in self.findings if one.severity is Severity.ERROR)


def select_from_topology(
    topology: Topology,
    *,
    retry_routes: Iterable[RetryRoutes] = (),
    declared: Iterable[DeclaredQueue] = (),
    patterns: Sequence[str] = (),
    observe_only: Sequence[str] = (),
    forced: bool = False,
) -> SourceSelection:
    """Every parking queue of a topology; with `patterns`, the queues that match one of them.

    A declaration's retry_routes say which they are; without them (a definitions.json) dead-letter routing does.
    A matched main or wait queue is refused; with `forced`, one that is named exactly is only warned about.
    """
    graph = build_graph(topology, retry_routes)
    services = {one.name: one.service for one in declared if one.service is not None}
    sources: list[Source] = []
    findings: list[Finding] = []
    for node, queue in graph.queues.items():
        role = graph.role(node)
        if not (matches(queue.name, patterns) if patterns else role == QueueRole.PARKING):
            continue
        if role != QueueRole.PARKING:
            insists = forced and queue.name in patterns
            findings.append(_refusal(queue.address, _ROLE_WORDS[role], forced=insists))
            if not insists:
                continue
        if queue.type == QueueType.STREAM:
            findings.append(_stream(queue.address))
            continue
        owner = graph.owner(node) if role == QueueRole.PARKING else None
        known = None if owner is None or owner == node else owner[1]
        sources.append(
            Source(
                vhost=queue.vhost,
                dlq=queue.name,
                known_queue=known,
                service=None if known is None else services.get(known),
                observe_only=matches(queue.name, observe_only),
                queue_type=queue.type,
                delivery_limit=graph.settings[node].delivery_limit,
            )
        )
    return SourceSelection(sources=tuple(sources), findings=tuple(findings))


def select_from_broker(
    queues: Iterable[QueueInfo],
    *,
    policies: PolicyMatcher,
    patterns: Sequence[str] = NAME_PATTERNS,
    observe_only: Sequence[str] = (),
    forced: bool = False,
    topology: SourceSelection | None = None,
    bindings: Iterable[Binding] = (),
) -> SourceSelection:
    """The queues of a broker whose names match, judged by what the management API says about them.

    `topology` is the selection from a declaration: what it refused stays refused, and what it knows of a queue is kept.
    `bindings` are the vhost's.
    """
    queues = list(queues)
    dead_letter_exchanges = {queue_settings(one.queue, policies).dead_letter_exchange for one in queues}
    fed_by: dict[str, str] = {}
    for one in bindings:
        is_dead_letters = one.source in dead_letter_exchanges or matches(one.source, _EXCHANGE_PATTERNS)
        if one.destination_type is DestinationType.QUEUE and one.source and not is_dead_letters:
            fed_by[one.destination] = one.source
    depths: dict[str, int] = {}
    known = {} if topology is None else {(one.vhost, one.dlq): one for one in topology.sources}
    refused = () if topology is None else topology.refusals
    sources: list[Source] = []
    findings: list[Finding] = [*refused]
    for info in queues:
        source = known.get((info.vhost, info.name))
        address = info.queue.address
        if (source is None and not matches(info.name, patterns)) or info.exclusive:
            continue
        if any(one.address == address for one in refused):
            continue
        if info.type == QueueType.STREAM:
            findings.append(_stream(address))
            continue
        settings = queue_settings(info.queue, policies)
        signs = [] if source is not None else _signs_of_life(info, settings, fed_by.get(info.name))
        if signs:
            insists = forced and info.name in patterns
            findings.append(_refusal(address, ", and ".join(signs), forced=insists))
            if not insists:
                continue
        if info.messages is not None:
            depths[info.name] = info.messages
        if info.consumers:
            findings.append(_consumed(address, info.consumers))
        sources.append(
            Source(
                vhost=info.vhost,
                dlq=info.name,
                known_queue=None if source is None else source.known_queue,
                service=None if source is None else source.service,
                observe_only=matches(info.name, observe_only) or (source is not None and source.observe_only),
                queue_type=info.type,
                delivery_limit=info.delivery_limit(policies),
            )
        )
    return SourceSelection(sources=tuple(sources), findings=tuple(findings), depths=depths)


def _signs_of_life(info: QueueInfo, settings: Settings, exchange: str | None) -> list[str]:
    """The signs that a queue is a main or wait queue."""
    signs = []
    if settings.dead_letter_exchange is not None and settings.ttl_ms is not None:
        signs.append("sends its messages on after a time, as wait queues do")
    elif settings.dead_letter_exchange is not None:
        signs.append("has a dead-letter exchange of its own, as main queues do")
    if exchange is not None:
        signs.append(f"gets new messages from exchange {exchange}")
    if info.consumers and not matches(info.name, NAME_PATTERNS):
        signs.append(f"is consumed by {info.consumers}")
    return signs


def select_by_name(
    vhost: str,
    names: Sequence[str],
    *,
    observe_only: Sequence[str] = (),
    consumers: dict[str, int] | None = None,
    depths: dict[str, int] | None = None,
    forced: bool = False,
    unlisted: str = "say where the management API is with --management-url",
) -> SourceSelection:
    """Queues by their exact names, where there is no management API.

    A pattern is refused; so is, without `forced`, a name that is not usual for dead-letter queues, because nothing else
    tells it from a main queue. `consumers` and `depths` are from passive declares; `unlisted` is why the management API
    could not be asked.
    """
    sources: list[Source] = []
    findings: list[Finding] = []
    for name in names:
        if _WILDCARDS & set(name):
            findings.append(
                Finding(
                    code="pattern-without-management",
                    address=f"queue {name}",
                    summary="is a pattern, and AMQP can't list queues",
                    hint=f"name the queues exactly; {unlisted}",
                )
            )
            continue
        if not matches(name, NAME_PATTERNS):
            why = "may be a main queue: it is not named like a dead-letter queue, and AMQP alone can't say more"
            findings.append(_refusal(f"queue {name}", why, forced=forced))
            if not forced:
                continue
        if consumers is not None and consumers.get(name):
            findings.append(_consumed(f"queue {name}", consumers[name]))
        sources.append(Source(vhost=vhost, dlq=name, observe_only=matches(name, observe_only)))
    return SourceSelection(sources=tuple(sources), findings=tuple(findings), depths={} if depths is None else depths)


def resume_command(dlq: str) -> str:
    """The command that makes a stopped queue be collected again."""
    return f"redrive collect --resume-queue {shlex.quote(dlq)}"


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of the globs. Case counts, as it does for the broker."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


_ROLE_WORDS = {
    QueueRole.MAIN: "is a main queue: its messages are live",
    QueueRole.WAIT: "is a wait queue: its messages come back",
}


def _refusal(address: str, why: str, *, forced: bool) -> Finding:
    return Finding(
        code="live-queue",
        severity=Severity.WARNING if forced else Severity.ERROR,
        address=address,
        summary=f"{why}; collecting would take its messages away",
        hint="it is collected because you insisted"
        if forced
        else "leave it out, or name it exactly with --match NAME --force if its messages are dead letters",
    )


def _stream(address: str) -> Finding:
    return Finding(
        code="stream",
        address=address,
        summary="is a stream: nothing can be taken out of it",
        hint="leave it out of the pattern",
    )


def _consumed(address: str, consumers: int) -> Finding:
    return Finding(
        code="consumed",
        severity=Severity.WARNING,
        address=address,
        summary=f"has {consumers} consumer{'' if consumers == 1 else 's'}: somebody takes messages from it already",
        hint="a queue that is collected must have no other consumer; stop the others, or leave the queue out",
    )
