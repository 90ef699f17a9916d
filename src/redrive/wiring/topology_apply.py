"""`redrive apply`: declares a topology on a broker; the embedded broker gets one the same way."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from redrive.client import AuthenticationFailed, BrokerTarget, Client, ConnectionFailed, ReconnectBackoff
from redrive.deploy import Difference, Inspection, apply, as_documented, inspect, usable_queues
from redrive.embedded import EmbeddedBroker
from redrive.management import Management, ManagementError
from redrive.topology import Binding, Compiled, Topology
from redrive.wiring.files import load_file

_BINDINGS_S_MAX = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What an apply found and did; `declared` is None if it was not confirmed or something differed.

    `differences` prevented it. `left` did not, each with the command that removes the difference. `advice` is what to
    write in the file to use queues that differ as they are. `bindings_unknown` says why nobody knows which bindings
    existed; "": it is known.
    """

    inspection: Inspection
    declared: tuple[str, ...] | None
    bindings: int
    bindings_unknown: str
    server_version: str
    differences: tuple[Difference, ...] = ()
    left: tuple[tuple[Difference, str], ...] = ()
    advice: tuple[str, ...] = ()


def apply_topology(
    topology: Topology,
    *,
    compiled: Compiled | None,
    target: BrokerTarget,
    management: Management,
    confirm: Callable[[Inspection, str], bool],
    wait_s: float = 0.0,
    waiting: Callable[[str], None] = lambda _: None,
) -> Applied:
    """Inspects, asks `confirm`, applies. `compiled` is what the topology was made from, None if no shapes made it.

    `confirm` gets what is missing, and why nobody knows which bindings exist, "" if that is known. A broker that is not
    up yet is waited for as long as `wait_s`; `waiting` gets the reason each time it changes. `management` is asked for
    the bindings, if it answers and belongs to the same broker. Raises `ConnectionFailed`, `ApplyFailed`.
    """
    vhost = target.vhost

    async def run() -> Applied:
        client = await wait_connected(target, name="redrive apply", wait_s=wait_s, waiting=waiting)
        try:
            version = (await client.connection()).server_version
            bound, reason = await _find_bindings(client, management, vhost)
            inspection = await inspect(client, topology, bound=bound)
            differences, left = _judged(compiled, inspection.differences, vhost)
            declared = None
            if not differences and confirm(inspection, reason):
                declared = await apply(client, topology, inspection)
            return Applied(
                inspection=inspection,
                declared=declared,
                bindings=len(topology.bindings),
                bindings_unknown=reason if inspection.missing_bindings is None else "",
                server_version=version,
                differences=differences,
                left=left,
                advice=() if compiled is None else tuple(_advice(compiled, differences)),
            )
        finally:
            await client.close()
            await management.close()

    return asyncio.run(run())


def _judged(
    compiled: Compiled | None, differences: tuple[Difference, ...], vhost: str
) -> tuple[tuple[Difference, ...], tuple[tuple[Difference, str], ...]]:
    """The differences that prevent an apply, and the others: queues that lose nothing without dead-letter settings."""
    if compiled is None:
        return differences, ()
    usable = usable_queues(compiled)
    preventing, left = [], []
    for one in differences:
        if one.queue is not None and one.queue in usable and one.is_about_dead_lettering:
            left.append((one, compiled.queue(one.queue).dead_lettering_command(vhost) or ""))
        else:
            preventing.append(one)
    return tuple(preventing), tuple(left)


def _advice(compiled: Compiled, differences: tuple[Difference, ...]) -> Iterator[str]:
    given: set[str] = set()
    for one in differences:
        advice = as_documented(compiled, one)
        if advice and advice not in given:
            given.add(advice)
            yield advice


async def wait_connected(
    target: BrokerTarget, *, name: str, wait_s: float, waiting: Callable[[str], None] = lambda _: None
) -> Client:
    """A client that is connected, within `wait_s`; a refused login is not tried again. Close it.

    Raises `ConnectionFailed`.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    backoff = ReconnectBackoff(first_s=0.2, longest_s=2.0)
    reported = ""
    while True:
        client = Client(target, name=name)
        try:
            # A port that accepts connections and sends nothing belongs to a broker that is not up yet.
            async with asyncio.timeout(max(until_s - loop.time(), 0.0) if wait_s else None):
                await client.start()
            return client
        except AuthenticationFailed:
            raise
        except (ConnectionFailed, TimeoutError) as error:
            reason = str(error) or reported or f"{target.address}: no answer"
            left_s = until_s - loop.time()
            if not wait_s:
                raise
            if left_s <= 0:
                raise ConnectionFailed((f"{reason} (waited {wait_s:g} s for it)",)) from None
            if reason != reported:
                waiting(reason)
                reported = reason
            await asyncio.sleep(min(backoff.next_s(), left_s))


async def _find_bindings(client: Client, management: Management, vhost: str) -> tuple[tuple[Binding, ...] | None, str]:
    """The bindings of the client's vhost, or None and the reason why they are not known."""
    address = management.endpoint.address
    cluster = str((await client.connection()).server_properties.get("cluster_name", ""))
    try:
        async with asyncio.timeout(_BINDINGS_S_MAX):
            # The usual port may be another broker's.
            if not cluster or await management.cluster_name() != cluster:
                return None, f"{address} is not this broker's management API; say where that is with --management-url"
            return await management.bindings(vhost), ""
    except ManagementError as error:
        return None, str(error)
    except TimeoutError:
        return None, f"{address} did not answer in {_BINDINGS_S_MAX:g} s; say where it is with --management-url"


def load_topology(path: str) -> Topology:
    """The topology of a file. Raises `UnreadableFile`, `InvalidDeclaration`, `InvalidDefinitions`."""
    return load_file(path).topology


async def declare_on(broker: EmbeddedBroker, topology: Topology) -> None:
    """Declares a topology on a running embedded broker, through the same client and order as on a real one."""
    for vhost in topology.used_vhosts():
        broker.add_vhost(vhost)
        part = topology.only(vhost)
        for policy in part.policies:
            broker.set_policy(policy)
        async with Client(broker.url_for(vhost), name="redrive broker") as client:
            await apply(client, part, await inspect(client, part))
