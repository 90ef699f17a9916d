"""Compiles a declaration to a topology: builds every queue's shape, merges what they share, refuses contradictions.

The compiler knows no shape by name. It checks what only the whole declaration shows: one name wanted for two different
things, bindings to exchanges that are not declared, and routes that lead astray (`route_checks`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from redrive.core import Finding, InvalidDeclaration, Severity, did_you_mean
from redrive.topology.argument_table import Arguments
from redrive.topology.arguments import check_exchange, check_policy, check_queue
from redrive.topology.declaration.model import BindingSource, Declaration, DeclaredQueue, address_of, finding_at
from redrive.topology.deliveries.no_retry import dead_letters
from redrive.topology.deliveries.queue_plan import QueuePlan
from redrive.topology.effective_settings import PolicyMatcher, queue_settings
from redrive.topology.model import (
    DEFAULT_EXCHANGE,
    DEFAULT_VHOST,
    Binding,
    DestinationType,
    Exchange,
    ExchangeType,
    Queue,
    Topology,
    Vhost,
)
from redrive.topology.names import name_problem
from redrive.topology.option_types import Invalid, Path
from redrive.topology.retry_routes import RetryRoutes
from redrive.topology.route_checks import RouteChecks
from redrive.topology.shapes.safe_queues import bindings_of

_Object = TypeVar("_Object", Exchange, Queue)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The topology of a declaration, the retry routes of each queue that has a shape, and warnings."""

    topology: Topology
    retry_routes: tuple[RetryRoutes, ...]
    warnings: tuple[Finding, ...]
    declared: tuple[DeclaredQueue, ...] = ()

    def queue(self, name: str) -> QueuePlan:
        """The plan of one declared queue, for its consumer. Raises `InvalidDeclaration` if no queue has the name."""
        declared = next((one for one in self.declared if one.name == name), None)
        if declared is None:
            hint = did_you_mean(name, (one.name for one in self.declared)) or "declare it under queues:"
            summary = "is not declared, so how it retries is not known"
            raise InvalidDeclaration(
                [Finding(code="unknown-queue", address=f"queue {name}", summary=summary, hint=hint)]
            )
        queue = next(one for one in self.topology.queues if one.name == name)
        return QueuePlan(
            declared=declared,
            queue=queue,
            shape=declared.retry,
            routes=next((one for one in self.retry_routes if one.queue == name), None),
            dead_letters=dead_letters(queue, queue_settings(queue, PolicyMatcher(self.topology.policies))),
            reentry_routes=self._reentry_routes(),
        )

    def _reentry_routes(self) -> dict[tuple[str, str], frozenset[str]]:
        found: dict[tuple[str, str], frozenset[str]] = {}
        for one in self.retry_routes:
            if one.reentry is not None:
                found[one.reentry] = found.get(one.reentry, frozenset()) | {one.queue}
        return found


def compile_declaration(declaration: Declaration, *, vhost: str | None = None) -> Compiled:
    """Compiles. `vhost` overrides the declaration's own. Raises `InvalidDeclaration` with every error at once."""
    return _Compiler(declaration).run(declaration.vhost if vhost is None else vhost)


class _Compiler:
    def __init__(self, declaration: Declaration) -> None:
        self._declaration = declaration
        self._exchanges: dict[str, tuple[Exchange, Path]] = {}
        self._queues: dict[str, tuple[Queue, Path]] = {}
        self._bindings: dict[Binding, None] = {}
        self._retry_routes: list[RetryRoutes] = []
        self._findings: list[Finding] = []
        self._declared = {queue.name for queue in declaration.queues}

    def run(self, vhost: str) -> Compiled:
        declared = self._declaration
        for exchange in declared.exchanges:
            path: Path = ("exchanges", exchange.name)
            arguments = exchange.arguments
            if exchange.alternate is not None:
                if arguments.get("alternate-exchange", exchange.alternate) != exchange.alternate:
                    summary = "alternate and arguments.alternate-exchange name two exchanges"
                    self._report((*path, "alternate"), "contradiction", summary, "keep alternate")
                arguments = Arguments({**arguments, "alternate-exchange": exchange.alternate})
            self._exchanges[exchange.name] = (
                Exchange(
                    name=exchange.name,
                    type=exchange.type,
                    durable=exchange.durable,
                    auto_delete=exchange.auto_delete,
                    internal=exchange.internal,
                    arguments=arguments,
                ),
                path,
            )
            for source in exchange.sources:
                self._bind(
                    Binding(
                        source=source.exchange,
                        destination=exchange.name,
                        destination_type=DestinationType.EXCHANGE,
                        routing_key=source.key,
                        arguments=source.arguments,
                    )
                )
        for queue in declared.queues:
            self._build(queue)
        self._check_references()
        if not self._findings:
            self._check_routes()
        topology = self._topology(vhost)
        self._check_arguments()
        errors = [one for one in self._findings if one.severity is Severity.ERROR]
        if errors:
            raise InvalidDeclaration(errors)
        return Compiled(
            topology=topology,
            retry_routes=tuple(
                self._retry_routes
                if vhost == DEFAULT_VHOST
                else (replace(one, vhost=vhost) for one in self._retry_routes)
            ),
            warnings=tuple(self._findings),
            declared=declared.queues,
        )

    def _build(self, queue: DeclaredQueue) -> None:
        if queue.retry is None:
            self._add(self._queues, _plain_queue(queue), queue.path)
            for binding in bindings_of(queue):
                self._bind(binding)
            return
        try:
            built = queue.retry.build(queue)
        except Invalid as problem:
            self._report((*queue.path, *problem.path), "refused-by-shape", problem.summary, problem.hint)
            return
        for exchange in built.exchanges:
            self._add(self._exchanges, exchange, queue.path)
        for emitted in built.queues:
            self._add(self._queues, emitted, queue.path)
        for binding in built.bindings:
            self._bind(binding)
        self._retry_routes.append(built.routes)

    def _add(self, into: dict[str, tuple[_Object, Path]], emitted: _Object, path: Path) -> None:
        known = into.get(emitted.name)
        if known is None:
            problem = name_problem(emitted.name, "queue" if isinstance(emitted, Queue) else "exchange")
            if problem is not None:
                self._report(path, "bad-name", f"its {emitted.address}: {problem}", "rename it")
            into[emitted.name] = (emitted, path)
        elif known[0] != emitted:
            self._report(
                path,
                "name-conflict",
                f"{emitted.address} is wanted here and by {address_of(known[1])}, with different settings",
                "rename one, or give one of them its own naming template",
            )
        elif isinstance(emitted, Queue) and known[1] != path and emitted.name in self._declared:
            self._report(
                path, "name-conflict", f"{emitted.address} already belongs to {address_of(known[1])}", "rename one"
            )

    def _bind(self, binding: Binding) -> None:
        self._bindings.setdefault(binding)

    def _check_references(self) -> None:
        """Checks that every exchange in a binding, and every alternate exchange, is declared."""
        for exchange in self._declaration.exchanges:
            here: Path = ("exchanges", exchange.name)
            self._check_sources(exchange.sources, here)
            if exchange.alternate is not None and not self._known(exchange.alternate):
                self._report_unknown(exchange.alternate, (*here, "alternate"))
        for queue in self._declaration.queues:
            self._check_sources(queue.sources, queue.path)
            chosen = getattr(queue.retry, "exchange", None)
            if chosen is not None and not self._known(chosen):
                self._report_unknown(chosen, (*queue.path, "retry", "exchange"))

    def _check_sources(self, sources: Iterable[BindingSource], path: Path) -> None:
        for source in sources:
            if not self._known(source.exchange):
                self._report_unknown(source.exchange, (*path, "from", source.exchange))
            elif source.exchange == DEFAULT_EXCHANGE:
                self._report(
                    (*path, "from"), "default-exchange", "nothing can be bound to the default exchange", "leave it out"
                )
            elif not source.key and not source.arguments and self._type(source.exchange) in _KEYED:
                self._report(
                    (*path, "from", source.exchange),
                    "no-keys",
                    f"exchange {source.exchange} routes by key and none is given",
                    f'write {{{source.exchange}: ["some.key"]}}, or "#" for all',
                )

    def _check_routes(self) -> None:
        paths = {queue.name: queue.path for queue in self._declaration.queues}
        for problem in RouteChecks(self._topology(DEFAULT_VHOST), self._retry_routes).problems():
            self._report((*paths[problem.queue], *problem.path), problem.code, problem.summary, problem.hint)

    def _check_arguments(self) -> None:
        """Checks the author's arguments for what RabbitMQ refuses or does not know; the shapes' own are right."""
        for queue in self._declaration.queues:
            emitted = self._queues.get(queue.name)
            if queue.arguments and emitted is not None:
                self._take(check_queue(emitted[0]), (*queue.path, "arguments"))
        for exchange in self._declaration.exchanges:
            self._take(check_exchange(self._exchanges[exchange.name][0]), ("exchanges", exchange.name))
        for policy in self._declaration.policies:
            section = "operator_policies" if policy.operator else "policies"
            self._take(check_policy(policy), (section, policy.name, "definition"))

    def _take(self, findings: Iterable[Finding], path: Path) -> None:
        for finding in findings:
            self._findings.append(replace(finding, position=self._declaration.locate(path)))

    def _known(self, exchange: str) -> bool:
        return exchange in self._exchanges or exchange in PREDECLARED or exchange == DEFAULT_EXCHANGE

    def _type(self, exchange: str) -> str:
        return self._exchanges[exchange][0].type if exchange in self._exchanges else PREDECLARED.get(exchange, "")

    def _report_unknown(self, exchange: str, path: Path) -> None:
        hint = did_you_mean(exchange, self._exchanges) if self._exchanges else ""
        self._report(
            path, "unknown-exchange", f"there is no exchange {exchange}", hint or "declare it under exchanges:"
        )

    def _report(self, path: Path, code: str, summary: str, hint: str) -> None:
        self._findings.append(finding_at(path, locate=self._declaration.locate, code=code, summary=summary, hint=hint))

    def _topology(self, vhost: str) -> Topology:
        """Shapes build in "/"; the vhost is set last, so that one declaration serves any vhost."""
        topology = Topology(
            vhosts=(Vhost(name=vhost),),
            exchanges=tuple(one for one, _ in self._exchanges.values()),
            queues=tuple(one for one, _ in self._queues.values()),
            bindings=tuple(self._bindings),
            policies=self._declaration.policies,
        )
        return topology if vhost == DEFAULT_VHOST else topology.moved(vhost)


PREDECLARED = {
    "amq.direct": ExchangeType.DIRECT,
    "amq.fanout": ExchangeType.FANOUT,
    "amq.headers": ExchangeType.HEADERS,
    "amq.match": ExchangeType.HEADERS,
    "amq.topic": ExchangeType.TOPIC,
    "amq.rabbitmq.trace": ExchangeType.TOPIC,
}
"""The exchanges that every vhost has from the start."""

_KEYED = (ExchangeType.DIRECT, ExchangeType.TOPIC)


def _plain_queue(queue: DeclaredQueue) -> Queue:
    arguments = dict(queue.arguments)
    if queue.type is not None:
        arguments = {"x-queue-type": queue.type, **arguments}
    return Queue(name=queue.name, durable=queue.durable, auto_delete=queue.auto_delete, arguments=Arguments(arguments))
