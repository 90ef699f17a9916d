"""A dead letter redriven with `--keep-attempts`: its run counts, and `attempt` is never above `attempts_max`."""

from redrive import App, Message
from redrive.client import Confirmed
from redrive.deadletters.redrive.copies import CopyRules, copy_of
from redrive.records import ClaimedLetter, MessageContent, RedriveTarget
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import compiled, stage, until

DECLARED, QUEUE = "services: [wms-cincout]", "wms.queue.wms-cincout"


def test_run_12_of_11_is_run_12_of_12() -> None:
    seen: list[tuple[int, int]] = []

    async def scenario() -> None:
        async with stage(DECLARED) as on:
            topology = compiled(DECLARED)
            routes = topology.queue(QUEUE).routes
            assert routes is not None
            dlq = routes.parking.queue
            app = App(topology)

            @app.consumer(QUEUE, pause_after=None)
            async def place(_body: bytes, message: Message) -> None:
                seen.append((message.attempt, message.attempts_max))
                raise ValueError("no")

            async with on.running(app):
                await on.publish(QUEUE)
                await until(lambda: on.decisions()["park"] == 1)
                (parked,) = await on.take(dlq)
                letter = ClaimedLetter(
                    id="0000000000000001",
                    vhost="/",
                    queue=QUEUE,
                    dlq=dlq,
                    dlq_exchange="",
                    dlq_routing_key=dlq,
                    content=MessageContent(properties=parked.header, body=parked.body),
                    redrives=1,
                    attempts=11,
                    was_in_doubt=False,
                )
                rules = CopyRules(target=RedriveTarget(), who="ada", keep_attempts=True)
                copy = copy_of(letter, rules, now_ms=1)
                publisher = await on.client.publisher()
                assert await publisher.publish_many([copy]) == [Confirmed()]
                await publisher.close()
                await until(lambda: on.decisions()["park"] == 2)
            told = on.notes.last("runtime.decided")
            assert (told["attempt"], told["attempts_max"]) == (12, 12)

    run_scenario(scenario())
    assert seen == [*((run, 11) for run in range(1, 12)), (12, 12)]
