"""The rare AMQP methods: which engine command each calls, and its answer. One function a method.

Publishes and acks are the session's own. What the engine sends beside an answer (deliveries, a fetched message) is in
its effects and goes out in its place.
"""

from collections.abc import Callable
from typing import Any

from redrive import wire
from redrive.embedded.engine import AmqpError, Channel
from redrive.wire import methods

Answer = wire.methods.Method | None


def run_command(channel: Channel, method: methods.Method) -> tuple[Answer, Callable[[], None] | None]:
    """Run a method; its answer (None: there is none, or an effect is it), and what to call once that is queued.

    Raises AmqpError.
    """
    handler = _HANDLERS.get(type(method))
    if handler is None:
        raise AmqpError(540, f"{method.NAME} is not implemented")
    answer = handler(channel, method)
    if isinstance(answer, tuple):
        reply, then = answer
    else:
        reply, then = answer, None
    return (None if getattr(method, "nowait", False) else reply), then


def _queue_declare(channel: Channel, method: methods.QueueDeclare) -> Answer:
    name, messages, consumers = channel.declare_queue(
        method.queue,
        passive=method.passive,
        durable=method.durable,
        exclusive=method.exclusive,
        auto_delete=method.auto_delete,
        arguments=method.arguments,
    )
    return methods.QueueDeclareOk(queue=name, message_count=messages, consumer_count=consumers)


def _queue_delete(channel: Channel, method: methods.QueueDelete) -> Answer:
    count = channel.delete_queue(method.queue, if_unused=method.if_unused, if_empty=method.if_empty)
    return methods.QueueDeleteOk(message_count=count)


def _queue_purge(channel: Channel, method: methods.QueuePurge) -> Answer:
    return methods.QueuePurgeOk(message_count=channel.purge_queue(method.queue))


def _queue_bind(channel: Channel, method: methods.QueueBind) -> Answer:
    channel.bind_queue(method.queue, method.exchange, method.routing_key, method.arguments)
    return methods.QueueBindOk()


def _queue_unbind(channel: Channel, method: methods.QueueUnbind) -> Answer:
    channel.unbind_queue(method.queue, method.exchange, method.routing_key, method.arguments)
    return methods.QueueUnbindOk()


def _exchange_declare(channel: Channel, method: methods.ExchangeDeclare) -> Answer:
    channel.declare_exchange(
        method.exchange,
        method.type,
        passive=method.passive,
        durable=method.durable,
        auto_delete=method.auto_delete,
        internal=method.internal,
        arguments=method.arguments,
    )
    return methods.ExchangeDeclareOk()


def _exchange_delete(channel: Channel, method: methods.ExchangeDelete) -> Answer:
    channel.delete_exchange(method.exchange, if_unused=method.if_unused)
    return methods.ExchangeDeleteOk()


def _exchange_bind(channel: Channel, method: methods.ExchangeBind) -> Answer:
    channel.bind_exchange(method.destination, method.source, method.routing_key, method.arguments)
    return methods.ExchangeBindOk()


def _exchange_unbind(channel: Channel, method: methods.ExchangeUnbind) -> Answer:
    channel.unbind_exchange(method.destination, method.source, method.routing_key, method.arguments)
    return methods.ExchangeUnbindOk()


def _qos(channel: Channel, method: methods.BasicQos) -> Answer:
    channel.qos(method.prefetch_count, prefetch_size=method.prefetch_size, per_channel=method.per_channel)
    return methods.BasicQosOk()


def _consume(channel: Channel, method: methods.BasicConsume) -> tuple[Answer, Callable[[], None]]:
    tag = method.consumer_tag or f"amq.ctag-{channel.engine.unique_name()}"
    consumer = channel.consume(
        method.queue, tag, no_ack=method.no_ack, exclusive=method.exclusive, arguments=method.arguments
    )

    def begin() -> None:
        # Messages mode only once the client knows its tag.
        if consumer is not None:
            consumer.queue.dispatch()
            channel.engine.flush_dead_letters()

    return methods.BasicConsumeOk(consumer_tag=tag), begin


def _cancel(channel: Channel, method: methods.BasicCancel) -> Answer:
    channel.cancel(method.consumer_tag)
    return methods.BasicCancelOk(consumer_tag=method.consumer_tag)


def _get(channel: Channel, method: methods.BasicGet) -> Answer:
    return None if channel.get(method.queue, no_ack=method.no_ack) else methods.BasicGetEmpty()


def _recover(channel: Channel, method: methods.BasicRecover) -> Answer:
    channel.recover(method.requeue)
    return methods.BasicRecoverOk()


def _recover_async(channel: Channel, method: methods.BasicRecoverAsync) -> Answer:
    channel.recover(method.requeue)
    return None


def _confirm_select(channel: Channel, _method: methods.ConfirmSelect) -> Answer:
    channel.select_confirms()
    return methods.ConfirmSelectOk()


def _tx_select(channel: Channel, _method: methods.TxSelect) -> Answer:
    channel.select_transactions()
    return methods.TxSelectOk()


def _tx_commit(channel: Channel, _method: methods.TxCommit) -> Answer:
    channel.commit()
    return methods.TxCommitOk()


def _tx_rollback(channel: Channel, _method: methods.TxRollback) -> Answer:
    channel.rollback()
    return methods.TxRollbackOk()


def _mode(_channel: Channel, method: methods.ChannelFlow) -> Answer:
    if not method.active:
        raise AmqpError(540, "active=false")
    return methods.ChannelFlowOk(active=True)


def _nothing(_channel: Channel, _method: methods.Method) -> Answer:
    return None


def _access(_channel: Channel, _method: methods.AccessRequest) -> Answer:
    return methods.AccessRequestOk(ticket=1)


_HANDLERS: dict[type[methods.Method], Callable[[Channel, Any], Any]] = {
    methods.QueueDeclare: _queue_declare,
    methods.QueueDelete: _queue_delete,
    methods.QueuePurge: _queue_purge,
    methods.QueueBind: _queue_bind,
    methods.QueueUnbind: _queue_unbind,
    methods.ExchangeDeclare: _exchange_declare,
    methods.ExchangeDelete: _exchange_delete,
    methods.ExchangeBind: _exchange_bind,
    methods.ExchangeUnbind: _exchange_unbind,
    methods.BasicQos: _qos,
    methods.BasicConsume: _consume,
    methods.BasicCancel: _cancel,
    methods.BasicCancelOk: _nothing,
    methods.BasicGet: _get,
    methods.BasicRecover: _recover,
    methods.BasicRecoverAsync: _recover_async,
    methods.ConfirmSelect: _confirm_select,
    methods.TxSelect: _tx_select,
    methods.TxCommit: _tx_commit,
    methods.TxRollback: _tx_rollback,
    methods.ChannelFlow: _mode,
    methods.ChannelFlowOk: _nothing,
    methods.AccessRequest: _access,
}
