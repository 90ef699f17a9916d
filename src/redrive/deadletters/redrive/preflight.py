"""The check before anything is sent: does the target exist, does anybody consume it, is there room?

An error refuses the operation, and nothing is changed; a warning is reported, and the operation may go on. A passive
declare counts ready messages only. The limits of a queue are known where the management API answers. Whether an
exchange routes the copies only the publish itself can tell: they are published as mandatory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from redrive.client import AccessRefused, ChannelClosed, Client
from redrive.core import Finding, RedriveError, Severity, format_duration_ms
from redrive.deadletters.redrive.copies import NAME_BYTES_MAX, targets_of
from redrive.inspection import exchange_exists, queue_state
from redrive.management import Management, ManagementError
from redrive.records import RedriveTarget
from redrive.topology import queue_settings

BACKLOG_WARN = 10_000
"""From so many ready messages on, a backlog is reported."""


class TargetRefused(RedriveError):
    """The targets can't take the copies; `findings` says why. Nothing was sent and nothing changed."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        self.findings = findings
        super().__init__("\n".join(finding.text for finding in findings))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """What arguments and policies together allow a queue to hold; None is no limit."""

    length_max: int | None = None
    overflow: str = "drop-head"
    is_dead_lettered: bool = False
    """Whether what overflows or expires is dead-lettered."""
    ttl_ms: int | None = None


class LimitsOf(Protocol):
    """Looks up the limits of a queue: the management API."""

    async def __call__(self, vhost: str, queue: str, /) -> QueueLimits | None:
        """The limits, or None where they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetHealth:
    """One target as it is now. `routing_key` is None where each message has its own; the counts are None for an
    exchange and for a queue that does not exist."""

    exchange: str
    routing_key: str | None
    copies: int
    """How many would be sent there."""
    exists: bool
    messages_ready: int | None = None
    consumers: int | None = None
    limits: QueueLimits | None = None

    @property
    def address(self) -> str:
        """Its name in a sentence."""
        if not self.exchange:
            return f"queue {self.routing_key}"
        return f"exchange {self.exchange}" + (f" with key {self.routing_key}" if self.routing_key is not None else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """All targets, and the findings about them."""

    targets: tuple[TargetHealth, ...]
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that refuse the operation."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    def require(self) -> None:
        """Raises TargetRefused if there is an error."""
        if self.errors:
            raise TargetRefused(self.errors)


async def check_targets(
    client: Client, queues: Mapping[str, int], target: RedriveTarget, *, limits_of: LimitsOf | None = None
) -> Preflight:
    """Looks at every target of so many dead letters of each failed queue.

    Raises ClientError without a broker, and TimeoutError if it does not answer.
    """
    found = []
    for (exchange, key), count in targets_of(dict(queues), target).items():
        health = await _look(client, exchange, key, count)
        if limits_of is not None and health.exists and not exchange and key is not None:
            limits = await limits_of(client.target.vhost, key)
            health = replace(health, limits=limits)
        found.append(health)
    findings = [finding for health in found for finding in judge(health)]
    return Preflight(targets=tuple(found), findings=tuple(findings))


def judge(health: TargetHealth) -> list[Finding]:
    """The findings about one target."""
    if not health.exists:
        return [_missing(health)]
    findings = []
    if health.consumers == 0:
        findings.append(
            _warning("no-consumers", health, "nobody consumes it; the copies will wait there until somebody does")
        )
    ready = 0 if health.messages_ready is None else health.messages_ready
    if ready >= BACKLOG_WARN:
        findings.append(_warning("backlog", health, f"{ready:,} messages are ready there already; ours go behind them"))
    limits = health.limits
    if limits is not None and limits.length_max is not None and ready + health.copies > limits.length_max:
        findings.append(_overfull(health, limits, ready))
    if limits is not None and limits.ttl_ms is not None and not limits.is_dead_lettered:
        lives = format_duration_ms(limits.ttl_ms)
        summary = f"its messages expire after {lives} and go nowhere: a copy not consumed by then is lost"
        findings.append(_warning("target-expires", health, f"{summary}, and counts as resolved"))
    return findings


def outside_scope(exchange: str, routing_key: str | None, count: int) -> Finding:
    """The finding about a target that the caller may not send to. It says nothing of the target itself."""
    health = TargetHealth(exchange=exchange, routing_key=routing_key, copies=count, exists=False)
    stay = "the dead letter for it stays" if count == 1 else f"the {count:,} dead letters for it stay"
    return _warning("outside-scope", health, f"it is outside of the queues that you may send to; {stay}")


def judge_for_witness(preflight: Preflight) -> Preflight:
    """The preflight with findings against a witness: a full target refuses a copy, and the witness queue keeps its own
    (seen on 3.10 and 4.3). Then the witness would say that a message arrived which is nowhere."""
    findings = tuple(
        Finding(
            code="witness-unsure",
            address=health.address,
            summary="it refuses what does not fit, and a witness would not notice",
            hint="send without a witness",
        )
        for health in preflight.targets
        if health.limits is not None
        and health.limits.length_max is not None
        and health.limits.overflow.startswith("reject-publish")
    )
    return replace(preflight, findings=(*preflight.findings, *findings))


def limits_from_management(management: Management) -> LimitsOf:
    """Asks the management API for the limits of a queue. Where it does not answer, they are not known."""

    async def limits_of(vhost: str, queue: str, /) -> QueueLimits | None:
        try:
            info = await management.queue(vhost, queue)
            policies = await management.policy_matcher(vhost)
        except ManagementError:
            return None
        if info is None:
            return None
        settings = queue_settings(info.queue, policies)
        return QueueLimits(
            length_max=info.max_length(policies),
            overflow="drop-head" if settings.drops_head else "reject-publish",
            is_dead_lettered=settings.dead_letter_exchange is not None,
            ttl_ms=settings.ttl_ms,
        )

    return limits_of


async def _look(client: Client, exchange: str, key: str | None, count: int) -> TargetHealth:
    if not exchange:
        name = key or ""
        if not name or len(name.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
            return TargetHealth(exchange="", routing_key=name, copies=count, exists=False)
        try:
            state = await queue_state(client, name)
        except ChannelClosed as error:
            # This user may not look at it, or it is another connection's exclusive queue: then the publish must tell.
            exists = isinstance(error, AccessRefused)
            return TargetHealth(exchange="", routing_key=name, copies=count, exists=exists)
        if state is None:
            return TargetHealth(exchange="", routing_key=name, copies=count, exists=False)
        return TargetHealth(
            exchange="",
            routing_key=name,
            copies=count,
            exists=True,
            messages_ready=state.messages_ready,
            consumers=state.consumers,
        )
    exists = len(exchange.encode("utf-8", "surrogateescape")) <= NAME_BYTES_MAX
    return TargetHealth(
        exchange=exchange,
        routing_key=key,
        copies=count,
        exists=exists and await exchange_exists(client, exchange),
    )


def _missing(health: TargetHealth) -> Finding:
    if not health.exchange and not health.routing_key:
        summary, hint = "nobody knows the queue they failed in", "name a target"
    else:
        summary, hint = "it does not exist", "declare it first, or name another target"
    return Finding(code="target-missing", address=health.address, summary=summary, hint=hint)


def _overfull(health: TargetHealth, limits: QueueLimits, ready: int) -> Finding:
    room = max(0, (limits.length_max or 0) - ready)
    holds = f"it holds at most {limits.length_max:,} messages and has {ready:,}"
    if limits.overflow.startswith("reject-publish"):
        summary = f"{holds}; what does not fit is refused and stays a dead letter"
        return _warning("target-full", health, summary)
    lost = "dead-lettered" if limits.is_dead_lettered else "lost"
    return Finding(
        code="target-overflows",
        address=health.address,
        summary=f"{holds}; {health.copies:,} more would push out its oldest, which are {lost}",
        hint=f"send at most {room:,} at a time (limit), or wait until it is shorter",
    )


def _warning(code: str, health: TargetHealth, summary: str) -> Finding:
    return Finding(code=code, severity=Severity.WARNING, address=health.address, summary=summary)
