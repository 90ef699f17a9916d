"""`simulate`: from a topology, the name of a queue and a script to a life."""

from redrive.core import Finding, InvalidDeclaration, InvalidInput, Severity, did_you_mean
from redrive.embedded import Refusal
from redrive.simulation.consumers import Consumer, DecidingConsumer, PlainConsumer
from redrive.simulation.lives import Life
from redrive.simulation.playing import Astray, Play
from redrive.simulation.script import Script, failing, parse_script
from redrive.simulation.stage import Entrance, Stage, find_entrance
from redrive.topology import BrokerVersion, Compiled, QueueType, Topology, check_for

DECIDED_BY_DEFAULT = "fail"
PLAIN_BY_DEFAULT = "reject"
_NAMES_SHOWN = 30


class UnknownQueue(InvalidInput):
    """The queue named is not in the file."""


class Unreachable(InvalidInput):
    """Nothing published there comes to the queue."""


def simulate(
    topology: Topology,
    *,
    queue: str,
    compiled: Compiled | None = None,
    script: str | None = None,
    fail: int | None = None,
    profile: str = "4.3",
    vhost: str | None = None,
    entrance: Entrance | None = None,
) -> tuple[Life, tuple[Finding, ...]]:
    """One message's life on a queue, and what had to be left out of the topology.

    A queue that `compiled` declares is consumed as the runtime would (`script`, or `fail` times and then not; by
    default every run fails); any other by somebody who says what the script says (by default `reject`). Raises
    `UnknownQueue`, `InvalidScript`, `InvalidDeclaration` for what the profile refuses, and `Unreachable`.
    """
    vhost = _find_vhost(topology, queue, vhost)
    _refuse_for(topology, queue=queue, vhost=vhost, profile=profile)
    consumer: Consumer
    if compiled is not None and any(one.name == queue for one in compiled.declared):
        consumer = DecidingConsumer(compiled.queue(queue))
        words = parse_script(DECIDED_BY_DEFAULT if script is None else script) if fail is None else failing(fail)
    else:
        consumer = PlainConsumer()
        words = _plain_script(script, fail)
    stage = Stage(topology, vhost=vhost, queue=queue, profile=profile)
    door = find_entrance(topology, vhost=vhost, queue=queue) if entrance is None else entrance
    try:
        life = Play(stage, consumer, words).run(door)
    except Refusal as refusal:
        raise _unreachable(queue, door, refusal.text) from None
    except Astray as astray:
        raise _unreachable(queue, door, str(astray)) from None
    return life, tuple(stage.left_out)


def _plain_script(script: str | None, fail: int | None) -> Script:
    if fail is not None:
        summary = "needs a queue declared in a redrive.yaml: otherwise nobody knows what a consumer does that fails"
        hint = f"say what it tells the broker, for example --script reject*{max(fail, 1)},ok"
        raise InvalidInput([Finding(code="nobody-decides", address="--fail", summary=summary, hint=hint)])
    return parse_script(PLAIN_BY_DEFAULT if script is None else script, plain=True)


def _find_vhost(topology: Topology, queue: str, said: str | None) -> str:
    homes = [one.vhost for one in topology.queues if one.name == queue and said in (None, one.vhost)]
    if len(homes) == 1:
        return homes[0]
    if homes:
        summary = f"is in the vhosts {', '.join(homes)}"
        hint = f"say which: --vhost {homes[0]}"
    else:
        names = [one.name for one in topology.queues if said in (None, one.vhost)]
        summary = "is not in the file" if said is None else f"is not in the file's vhost {said}"
        hint = did_you_mean(queue, names)
        if len(names) > _NAMES_SHOWN and not hint.startswith("did you mean"):
            hint = f"none of its {len(names)} queues has a name like that"
    raise UnknownQueue([Finding(code="unknown-queue", address=f"queue {queue}", summary=summary, hint=hint)])


def _refuse_for(topology: Topology, *, queue: str, vhost: str, profile: str) -> None:
    """What this version can't do with this very queue is no simulation but a mistake."""
    found = topology.queue(queue, vhost)
    assert found is not None
    if found.type == QueueType.STREAM:
        summary = "is a stream, which neither retries nor dead-letters"
        raise InvalidDeclaration([Finding(code="stream", address=found.address, summary=summary)])
    errors = [
        one for one in check_for(Topology(queues=(found,)), BrokerVersion(profile)) if one.severity is Severity.ERROR
    ]
    if errors:
        raise InvalidDeclaration(errors)


def _unreachable(queue: str, door: Entrance, why: str) -> Unreachable:
    summary = f"does not get there through exchange {door.exchange or '(default)'} with key {door.key!r}: {why}"
    hint = "name another with --exchange and --key"
    return Unreachable([Finding(code="unreachable", address=f"a message for {queue}", summary=summary, hint=hint)])
