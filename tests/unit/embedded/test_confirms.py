"""Publisher confirms on the wire: one frame for several publishes, and nacks by themselves."""

from redrive import wire
from redrive.wire import methods
from tests.unit.embedded.conversation import Conversation
from tests.unit.embedded.engine_rig import every_profile


@every_profile
def test_every_publish_of_a_packet_is_confirmed_and_the_refused_ones_by_themselves(profile: str) -> None:
    conversation = Conversation(profile)
    conversation.open(1)
    conversation.ask(1, methods.ConfirmSelect())
    conversation.ask(1, methods.QueueDeclare(queue="q", arguments={"x-max-length": 3, "x-overflow": "reject-publish"}))
    for queue in ("q", "q", "q", "q", "nowhere", "nowhere"):
        conversation.client.publish(1, "", queue, wire.Properties.of().raw, b"m")
    conversation.session.receive(conversation.client.data_to_send())
    conversation.dispatch_effects()
    conversation.session.flush_confirms()
    outcomes: dict[int, str] = {}
    for event in conversation.client.receive_data(conversation.session.wire.data_to_send()):
        assert isinstance(event, wire.Ack | wire.Nack)
        first = max(outcomes, default=0) + 1 if event.multiple else event.delivery_tag
        for number in range(first, event.delivery_tag + 1):
            outcomes[number] = "acked" if isinstance(event, wire.Ack) else "nacked"
    assert outcomes == {1: "acked", 2: "acked", 3: "acked", 4: "nacked", 5: "acked", 6: "acked"}
