"""What a restart of the broker keeps."""

import pytest

from redrive.embedded.engine import AmqpError
from tests.unit.embedded.engine_rig import Rig, every_profile, reject


@every_profile
def test_a_restart_keeps_persistent_dead_letters_and_forgets_exchanges_that_are_not_durable(profile: str) -> None:
    rig = Rig(profile)
    for name, durable in (("kept", True), ("passing", False)):
        rig.channel.declare_exchange(name, "fanout", durable=durable)
    rig.queue("dead")
    rig.queue("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    for exchange in ("kept", "passing"):
        rig.channel.bind_queue("q", exchange, "", {})
    for body, mode in (("persistent", 2), ("transient", 1)):
        rig.publish("q", body, delivery_mode=mode)
        reject(rig, "q")
    rig.engine.disconnect(rig.connection)
    rig.engine.restart()
    rig.connection = rig.engine.connect("/", "guest")
    rig.channel = rig.open_channel()
    assert rig.drain("dead") == ["persistent"]
    rig.publish("", "by kept", exchange="kept")
    with pytest.raises(AmqpError):
        rig.publish("", "by passing", exchange="passing")
    assert rig.drain("q") == ["by kept"]
