"""Plays a sequence on any broker through pika and writes down all it sees."""

import logging
import time
from collections.abc import Callable
from typing import Any

import pika
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from tests.live.embedded.operations import SLOT_S, WINDOW_S, Operation, Sequence
from tests.live.embedded.relaxations import masked

logging.getLogger("pika").setLevel(logging.CRITICAL)  # refusals and returns are what is looked for here


class TooLate(Exception):
    """The broker or the machine was so slow that a deadline may have passed between two observations."""


class Grid:
    """Time as a real broker has it: the wall clock, which must not leave the window of its slot."""

    def __init__(self, settle_s: float) -> None:
        self._start_s = time.monotonic()
        self._slot = 0
        self._settle_s = settle_s

    def settle(self) -> None:
        """Let the broker finish what it does behind our back."""
        time.sleep(self._settle_s)

    def breathe(self) -> None:
        """Let so much time pass between two messages that each has a deadline of its own."""
        time.sleep(0.002)

    def linger_s(self) -> float:
        """How long a consumer waits for its messages."""
        return 0.05

    def check(self) -> None:
        """Raises TooLate outside the window."""
        if time.monotonic() - self._start_s - self._slot * SLOT_S > WINDOW_S:
            raise TooLate

    def next_slot(self) -> None:
        """Wait for the next slot."""
        self._slot += 1
        time.sleep(max(0.0, self._start_s + self._slot * SLOT_S - time.monotonic()))


class VirtualGrid:
    """The same where time is advanced."""

    def __init__(self, advance: Callable[[float], None]) -> None:
        self._advance_by = advance
        self._slot = 0
        self._passed_s = 0.0

    def settle(self) -> None:
        """Nothing happens behind our back, but time goes on: what is said later is due later."""
        self._advance(0.01)

    def breathe(self) -> None:
        """The same between two messages."""
        self._advance(0.002)

    def linger_s(self) -> float:
        """Messages come before the answer to the next question."""
        return 0.0

    def check(self) -> None:
        """Never too late."""

    def next_slot(self) -> None:
        """On to the next slot."""
        self._slot += 1
        self._advance(self._slot * SLOT_S - self._passed_s)

    def _advance(self, seconds: float) -> None:
        self._passed_s += seconds
        self._advance_by(seconds)


class Player:
    """One sequence on one broker."""

    def __init__(
        self, url: str, sequence: Sequence, prefix: str, make_grid: Callable[[], "Grid | VirtualGrid"]
    ) -> None:
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0
        self._connection = pika.BlockingConnection(parameters)
        self._sequence = sequence
        self._prefix = prefix
        self._channel = self._connection.channel()
        self._publisher = self._connection.channel()
        self._publisher.confirm_delivery()
        self._held: list[tuple[Any, int, str]] = []
        self._make_grid = make_grid
        self._consumers = 0
        self.log: list[Any] = []

    def play(self) -> list[Any]:
        """Everything that was seen, in order."""
        try:
            self._declare()
            grid = self._grid = self._make_grid()
            for slot in self._sequence.slots:
                for operation in slot:
                    grid.check()
                    self.log.append((operation.verb, operation.queue, self._run(operation)))
                    grid.settle()
                grid.check()
                grid.next_slot()
            self._run(Operation("close"))
            for _ in range(5):
                grid.settle()
            for queue in self._sequence.queues:
                self.log.append(("left in", queue.name, self._drain(queue.name)))
            grid.check()
            return self.log
        finally:
            self._clean()

    def _name(self, queue: str) -> str:
        return f"{self._prefix}.{queue}"

    def _declare(self) -> None:
        for queue in self._sequence.queues:
            arguments = dict(queue.arguments)
            if "x-dead-letter-routing-key" in arguments:
                arguments["x-dead-letter-routing-key"] = self._name(arguments["x-dead-letter-routing-key"])
            self._channel.queue_declare(self._name(queue.name), durable=True, arguments=arguments)
        self._channel.exchange_declare(self._name("topic"), "topic", durable=True)
        for queue_name, key in self._sequence.bindings:
            self._channel.queue_bind(self._name(queue_name), self._name("topic"), key)

    def _clean(self) -> None:
        try:
            channel = self._connection.channel()
            for queue in self._sequence.queues:
                channel.queue_delete(self._name(queue.name))
            channel.exchange_delete(self._name("topic"))
            self._connection.close()
        except pika.exceptions.AMQPError:
            pass

    def _run(self, operation: Operation) -> Any:
        run: Any = getattr(self, f"_on_{operation.verb}")
        return run(operation)

    def _on_publish(self, operation: Operation) -> list[str]:
        return [self._publish("", self._name(operation.queue), body, operation) for body in operation.options["bodies"]]

    def _on_route(self, operation: Operation) -> list[str]:
        key = operation.options["key"]
        return [self._publish(self._name("topic"), key, body, operation) for body in operation.options["bodies"]]

    def _publish(self, exchange: str, key: str, body: str, operation: Operation) -> str:
        properties = pika.BasicProperties(**operation.options.get("properties", {}))
        self._grid.breathe()
        try:
            self._publisher.basic_publish(
                exchange, key, body.encode(), properties, mandatory=operation.options["mandatory"]
            )
        except NackError:
            return "nack"
        except UnroutableError:
            return "returned"
        return "ack"

    def _on_get(self, operation: Operation) -> list[Any]:
        seen: list[Any] = []
        for _ in range(operation.options["times"]):
            no_ack = operation.options["no_ack"]
            method, properties, body = self._channel.basic_get(self._name(operation.queue), auto_ack=no_ack)
            if method is None:
                seen.append(None)
                break
            if not no_ack:
                self._held.append((self._channel, method.delivery_tag, operation.queue))
            seen.append([*self._described(method, properties, body), method.message_count])
        return seen

    def _described(self, method: Any, properties: Any, body: bytes) -> list[Any]:
        text = [method.exchange, method.routing_key]
        route = [one.replace(self._prefix, "P") for one in text]
        headers = masked(properties.headers)
        return [body.decode(), method.redelivered, route, self._unprefixed(headers), properties.expiration]

    def _unprefixed(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.replace(self._prefix, "P")
        if isinstance(value, list):
            return [self._unprefixed(each) for each in value]
        if isinstance(value, dict):
            return {key: self._unprefixed(each) for key, each in value.items()}
        return value

    def _picked(self, operation: Operation) -> tuple[Any, int, bool] | None:
        """A channel, a tag in hand on it, and whether to settle all before it too: only where they are of one queue."""
        if not self._held:
            return None
        channel, tag, _ = self._held[int(operation.pick * len(self._held))]
        before = [one for one in self._held if one[0] is channel and one[1] <= tag]
        multiple = operation.options.get("multiple", False) and len({queue for _, _, queue in before}) == 1
        gone = before if multiple else [one for one in before if one[1] == tag]
        self._held = [one for one in self._held if one not in gone]
        return channel, tag, multiple

    def _on_ack(self, operation: Operation) -> Any:
        picked = self._picked(operation)
        if picked is not None:
            picked[0].basic_ack(picked[1], multiple=picked[2])
        return None if picked is None else picked[1:]

    def _on_nack(self, operation: Operation) -> Any:
        picked = self._picked(operation)
        if picked is not None:
            picked[0].basic_nack(picked[1], multiple=picked[2], requeue=operation.options["requeue"])
        return None if picked is None else picked[1:]

    def _on_reject(self, operation: Operation) -> Any:
        picked = self._picked(operation)
        if picked is not None:
            picked[0].basic_reject(picked[1], requeue=operation.options["requeue"])
        return None if picked is None else picked[1]

    def _on_consume(self, operation: Operation) -> list[Any]:
        channel = self._connection.channel() if operation.options["own_channel"] else self._channel
        channel.basic_qos(prefetch_count=operation.options["prefetch"])
        self._consumers += 1
        seen: list[Any] = []

        def take(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
            if not operation.options["no_ack"]:
                self._held.append((channel, method.delivery_tag, operation.queue))
            seen.append(self._described(method, properties, body))

        tag = f"consumer {self._consumers}"
        no_ack = operation.options["no_ack"]
        channel.basic_consume(self._name(operation.queue), take, auto_ack=no_ack, consumer_tag=tag)
        until = time.monotonic() + self._grid.linger_s()
        while time.monotonic() < until:
            self._connection.process_data_events(time_limit=0.01)
        channel.basic_qos(prefetch_count=1)
        self._connection.process_data_events(time_limit=0)
        channel.basic_cancel(tag)
        return seen

    def _on_meet(self, operation: Operation) -> list[Any]:
        """Messages that meet waiting consumers, each with a prefetch or all with one; one may be settled at once."""
        channel, options = self._connection.channel(), operation.options
        channel.basic_qos(prefetch_count=options["prefetch"], global_qos=options["shared"])
        seen: list[Any] = []

        def take(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
            self._held.append((channel, method.delivery_tag, operation.queue))
            seen.append([method.consumer_tag, *self._described(method, properties, body)])

        tags = [f"waiting {number}" for number in range(options["consumers"])]
        for tag in tags:
            channel.basic_consume(self._name(operation.queue), take, consumer_tag=tag)
        outcomes = []
        for body in options["bodies"]:
            outcomes.append(self._publish("", self._name(operation.queue), body, operation))
            self._listen(self._grid.linger_s() / 4)  # each meets those who wait alone; a slot's window is short
        self._listen(self._grid.linger_s() / 2)
        mine = [one for one in self._held if one[0] is channel]
        if mine and options["settled"]:
            self._held.remove(mine[0])
            if options["settled"] == "ack":
                channel.basic_ack(mine[0][1])
            else:
                channel.basic_nack(mine[0][1], requeue=True)
            self._listen(self._grid.linger_s() / 2)
        for tag in tags:
            channel.basic_cancel(tag)
        return [outcomes, *seen]

    def _listen(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._connection.process_data_events(time_limit=0.01)
        self._publisher.queue_declare("", exclusive=True, auto_delete=True)  # what came before the answer has come
        self._connection.process_data_events(time_limit=0)

    def _on_close(self, _operation: Operation) -> None:
        channels = {id(channel): channel for channel, _, _ in self._held}
        self._keep_one_queues()
        self._held.clear()
        channels[id(self._channel)] = self._channel
        for channel in channels.values():
            channel.close()
            self._grid.settle()  # a quorum queue hears of it in its own time, and of another one's end in another
        self._channel = self._connection.channel()

    def _keep_one_queues(self) -> None:
        """On each channel give back what it holds of all queues but one: two that hear of its end would race."""
        kept: dict[int, str] = {}
        others = [one for one in self._held if kept.setdefault(id(one[0]), one[2]) != one[2]]
        for queue in sorted({queue for _, _, queue in others}):
            for channel, tag, of in others:
                if of == queue:
                    channel.basic_nack(tag, requeue=True)
            self._grid.settle()

    def _on_recover(self, _operation: Operation) -> None:
        self._held = [one for one in self._held if one[0] is not self._channel]
        self._channel.basic_recover(requeue=True)

    def _on_count(self, operation: Operation) -> tuple[int, int]:
        answer = self._channel.queue_declare(self._name(operation.queue), passive=True).method
        return answer.message_count, answer.consumer_count

    def _on_purge(self, operation: Operation) -> int:
        count: int = self._channel.queue_purge(self._name(operation.queue)).method.message_count
        return count

    def _on_tx(self, operation: Operation) -> str:
        channel = self._connection.channel()
        channel.tx_select()
        for body in operation.options["bodies"]:
            channel.basic_publish("", self._name(operation.queue), body.encode())
        try:
            channel.tx_commit() if operation.options["commit"] else channel.tx_rollback()
        except ChannelClosedByBroker as closed:
            return f"{closed.reply_code} {closed.reply_text}"
        channel.close()
        return "done"

    def _drain(self, queue: str) -> list[Any]:
        found: list[Any] = []
        while True:
            method, properties, body = self._channel.basic_get(self._name(queue), auto_ack=True)
            if method is None:
                return found
            found.append(self._described(method, properties, body))
