"""How policies, operator policies and arguments make a queue's settings."""

from redrive.topology import Arguments, Policy
from tests.unit.embedded.engine_rig import Rig


def test_the_smaller_ttl_of_argument_and_policy_counts_and_an_operator_bounds_both() -> None:
    rig = Rig()
    rig.queue("q", message_ttl=5000)
    rig.publish("q", "before")
    vhost = rig.engine.vhosts["/"]
    vhost.set_policy(Policy(name="p", pattern="q", definition=Arguments({"message-ttl": 9000, "max-length": 5})))
    vhost.set_policy(Policy(name="o", pattern="q", definition=Arguments({"message-ttl": 1000}), operator=True))
    assert vhost.queues["q"].settings.message_ttl_ms == 1000
    assert vhost.queues["q"].settings.length_max == 5
    rig.pass_time(2)
    assert rig.drain("q") == ["before"]  # what was queued before the policy keeps its deadline


def test_of_two_policies_only_the_one_of_higher_priority_applies() -> None:
    rig = Rig()
    rig.queue("q")
    vhost = rig.engine.vhosts["/"]
    vhost.set_policy(Policy(name="a", pattern="q", definition=Arguments({"max-length": 5}), priority=1))
    vhost.set_policy(Policy(name="b", pattern="q", definition=Arguments({"message-ttl": 7}), priority=2))
    assert (vhost.queues["q"].settings.length_max, vhost.queues["q"].settings.message_ttl_ms) == (None, 7)
    vhost.remove_policy("b")
    assert (vhost.queues["q"].settings.length_max, vhost.queues["q"].settings.message_ttl_ms) == (5, None)


def test_an_argument_wins_over_a_policy_for_dead_letters_and_the_policy_for_overflow() -> None:
    rig = Rig()
    rig.queue("q", dead_letter_exchange="own", overflow="drop-head", message_ttl=1000)
    definition = {"dead-letter-exchange": "other", "overflow": "reject-publish", "message-ttl": 5000}
    vhost = rig.engine.vhosts["/"]
    vhost.set_policy(Policy(name="p", pattern="q", definition=Arguments(definition)))
    settings = vhost.queues["q"].settings
    assert (settings.dead_letter_exchange, settings.overflow, settings.message_ttl_ms) == (
        "own",
        "reject-publish",
        1000,
    )
