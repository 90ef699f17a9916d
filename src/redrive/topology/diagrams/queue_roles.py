"""The role of each queue: main, wait or parking, inferred from how dead letters flow.

`RetryRoutes` say it outright. Without them the graph decides: a wait queue has a TTL (or nothing but a way back) and
dead-letters into a queue from which messages go on; a parking queue gets dead letters and nothing leads out of it. Two
topologies look alike in the graph: a queue whose messages expire into parking, and a delay in front of a queue. For
these, and for a parking queue that only a consumer publishes to, the words in their names decide, and only for these.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from redrive.topology.diagrams.message_flows import MessageFlow
from redrive.topology.effective_settings import Settings
from redrive.topology.retry_routes import RetryRoutes
from redrive.topology.routing import Node, Routing

_WAITING_WORDS = frozenset({"wait", "waiting", "retry", "retries", "delay", "delayed", "backoff"})
_PARKING_WORDS = frozenset(
    {"dlq", "dead", "dlx", "deadletter", "deadletters", "parked", "parking", "poison", "failed", "error", "errors"}
)
_FILLER_WORDS = frozenset({"queue", "message", "letters"})
_TARGETS_LOOKED_AT_MAX = 64


class QueueRole(StrEnum):
    """The role of a queue."""

    MAIN = "main"
    WAIT = "wait"
    PARKING = "parking"


@dataclass(slots=True)
class QueueRoles:
    """Every queue's role, and the main queue it belongs to (None: to several or to none)."""

    roles: dict[Node, QueueRole] = field(default_factory=dict)
    owner: dict[Node, Node | None] = field(default_factory=dict)


@dataclass(slots=True)
class _Evidence:
    queues: Iterable[Node]
    settings: dict[Node, Settings]
    dead_letters: dict[Node, MessageFlow]
    routing: Routing
    # Dead letters that take the same route share one tuple of targets; grouping by it keeps a fan-in of thousands of
    # queues on a fan-out of thousands linear.
    sources: dict[Node, list[list[Node]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        by_route: dict[int, list[Node]] = {}
        for source, flow in self.dead_letters.items():
            if id(flow.targets) not in by_route:
                members: list[Node] = []
                by_route[id(flow.targets)] = members
                for target in flow.targets:
                    self.sources[target].append(members)
            by_route[id(flow.targets)].append(source)

    def targets(self, queue: Node) -> tuple[Node, ...]:
        flow = self.dead_letters.get(queue)
        return flow.targets[:_TARGETS_LOOKED_AT_MAX] if flow else ()


def assign_roles(
    queues: Iterable[Node],
    *,
    settings: dict[Node, Settings],
    dead_letters: dict[Node, MessageFlow],
    routing: Routing,
    retry_routes: Iterable[RetryRoutes] = (),
) -> QueueRoles:
    """The role and the owner of every queue."""
    evidence = _Evidence(list(queues), settings, dead_letters, routing)
    found = QueueRoles()
    _apply_routes(retry_routes, found, frozenset(evidence.queues))
    waits = _infer_waits(evidence, found.roles)
    for queue in evidence.queues:
        if queue not in found.roles:
            found.roles[queue] = QueueRole.WAIT if queue in waits else QueueRole.MAIN
    for queue in evidence.queues:
        if (
            found.roles[queue] == QueueRole.MAIN
            and queue not in found.owner
            and _is_parking(queue, evidence, found.roles)
        ):
            found.roles[queue] = QueueRole.PARKING
    _find_owners(evidence, found)
    return found


def _apply_routes(retry_routes: Iterable[RetryRoutes], found: QueueRoles, queues: frozenset[Node]) -> None:
    for routes in retry_routes:
        main = routes.vhost, routes.queue
        if main not in queues:
            continue
        found.roles[main] = QueueRole.MAIN
        found.owner[main] = main
        for name, role in [(wait.queue, QueueRole.WAIT) for wait in routes.waits] + [
            (routes.parking.queue, QueueRole.PARKING)
        ]:
            node = routes.vhost, name
            if node in queues and found.roles.get(node) != QueueRole.MAIN:
                found.roles[node] = role
                # A queue that a second queue's routes name is shared.
                found.owner[node] = main if found.owner.get(node, main) == main else None


def _infer_waits(evidence: _Evidence, known: dict[Node, QueueRole]) -> set[Node]:
    order = {queue: place for place, queue in enumerate(evidence.queues)}
    candidates = {queue for queue in evidence.queues if queue not in known and _may_wait(queue, evidence)}
    scores = {queue: _wait_score(queue, evidence) for queue in candidates}

    def waits_for(queue: Node, target: Node) -> bool:
        if known.get(target, QueueRole.MAIN) != QueueRole.MAIN or target == queue:
            return False
        if target in candidates:
            return (scores[queue], order[queue]) > (scores[target], order[target])
        return target in known or target in evidence.dead_letters or _is_delay_in_front(queue, target, evidence)

    return {queue for queue in candidates if any(waits_for(queue, target) for target in evidence.targets(queue))}


def _may_wait(queue: Node, evidence: _Evidence) -> bool:
    if queue not in evidence.dead_letters:
        return False
    if evidence.settings[queue].ttl_ms is not None:
        return True
    # Without a TTL the messages bring their own expiration; then only a closed loop shows that this is a wait queue.
    loops = any(queue in evidence.targets(target) for target in evidence.targets(queue) if target != queue)
    return loops and not _is_published_to(queue, evidence)


def _wait_score(queue: Node, evidence: _Evidence) -> int:
    words = _words(queue[1])
    return 2 * bool(words & _WAITING_WORDS) + (not _is_published_to(queue, evidence))


def _is_published_to(queue: Node, evidence: _Evidence) -> bool:
    dead_lettering = {
        flow.exchange for flow in (evidence.dead_letters.get(source) for source in _feeders(queue, evidence)) if flow
    }
    return any(
        (binding.vhost, binding.source) not in dead_lettering for binding in evidence.routing.to_queue.get(queue, ())
    )


def _feeders(queue: Node, evidence: _Evidence) -> list[Node]:
    return [members[0] for members in evidence.sources.get(queue, ())]


def _is_delay_in_front(queue: Node, target: Node, evidence: _Evidence) -> bool:
    if _words(target[1]) & _PARKING_WORDS:
        return False
    return bool(_words(queue[1]) & _WAITING_WORDS) or _is_published_to(target, evidence)


def _is_parking(queue: Node, evidence: _Evidence, roles: dict[Node, QueueRole]) -> bool:
    if queue in evidence.dead_letters:
        return False
    named_so = bool(_words(queue[1]) & _PARKING_WORDS)
    feeders = _feeders(queue, evidence)
    if not feeders:
        return named_so and _has_own_exchanges(queue, evidence)
    if any(roles.get(feeder) == QueueRole.WAIT for feeder in feeders):
        return False
    return named_so or not _is_published_to(queue, evidence)


def _has_own_exchanges(queue: Node, evidence: _Evidence) -> bool:
    """Whether each exchange that is bound to the queue is bound to nothing else, as one for parked messages is."""
    return all(
        len(evidence.routing.from_exchange[binding.vhost, binding.source]) == 1
        for binding in evidence.routing.to_queue.get(queue, ())
    )


def _find_owners(evidence: _Evidence, found: QueueRoles) -> None:
    mains = {_base_name(queue): queue for queue in evidence.queues if found.roles[queue] == QueueRole.MAIN}
    for queue in evidence.queues:
        if found.roles[queue] == QueueRole.MAIN:
            found.owner[queue] = queue
        elif queue not in found.owner and found.roles[queue] == QueueRole.WAIT:
            found.owner[queue] = _wait_owner(queue, evidence, found)
    for queue in evidence.queues:
        if queue not in found.owner:
            owners = _owners_by_dead_letters(queue, evidence, found)
            by_name = mains.get(_base_name(queue)) if not owners else None
            found.owner[queue] = owners[0] if len(owners) == 1 else by_name


def _wait_owner(queue: Node, evidence: _Evidence, found: QueueRoles) -> Node | None:
    fed_by = [one for one in _first_sources(queue, evidence) if found.roles[one] == QueueRole.MAIN]
    if fed_by:
        return fed_by[0] if len(fed_by) == 1 else None
    targets = [target for target in evidence.targets(queue) if found.roles[target] == QueueRole.MAIN]
    return max(targets, key=lambda target: len(_shared_prefix(queue[1], target[1])), default=None)


def _owners_by_dead_letters(queue: Node, evidence: _Evidence, found: QueueRoles) -> list[Node]:
    owners: dict[Node, None] = {}
    for source in _first_sources(queue, evidence):
        owner = found.owner.get(source)
        if owner is None:
            return []
        owners[owner] = None
    return list(owners)


def _first_sources(queue: Node, evidence: _Evidence) -> list[Node]:
    """Enough of a queue's sources to tell one from several."""
    return [source for members in evidence.sources.get(queue, ())[:8] for source in members[:8]]


def _words(name: str) -> frozenset[str]:
    return frozenset(re.split(r"[^a-z0-9]+", name.lower()))


def _base_name(queue: Node) -> tuple[str, ...]:
    """A name without the words for its role: `q.audit.dlq` and `q.audit` have the same."""
    words = re.split(r"[^a-z0-9]+", queue[1].lower())
    return (queue[0], *(word for word in words if word not in _PARKING_WORDS | _FILLER_WORDS))


def _shared_prefix(left: str, right: str) -> str:
    for place, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return left[:place]
    return left[: len(right)]
