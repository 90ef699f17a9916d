"""Every wrong declaration gets one clear sentence with its place and the way out, all of them at once."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.core import InvalidDeclaration
from redrive.topology import compile_declaration, declare, read_declaration, write_definitions
from redrive.topology.declaration.yaml_source import YamlSource
from tests.examples import examples

TOPIC = "exchanges: {e: topic}\n"

CASES: dict[str, tuple[str, str]] = {
    "an unknown key": (
        "quues: {}",
        "redrive.yaml:1:1: quues: 'quues' is not known here; did you mean `queues`?",
    ),
    "an unknown option": (
        "queues:\n  orders:\n    retry: {delay: [30s]}",
        "redrive.yaml:3:13: queue orders, retry.delay: shape ladder has no option 'delay'; did you mean `delays`?",
    ),
    "an unknown shape": (
        "queues: {a: {retry: {shape: leader}}}",
        "redrive.yaml:1:22: queue a, retry.shape: there is no shape 'leader'; did you mean `ladder`?",
    ),
    "a number without its unit": (
        "queues: {a: {retry: [30]}}",
        "redrive.yaml:1:22: queue a, retry[0]: must be a duration with its unit, like 30s or 5m, not 30; "
        "write 30s or 30ms",
    ),
    "a delay that is none": (
        "queues:\n  a:\n    retry: [30s, soon]",
        "redrive.yaml:3:18: queue a, retry[1]: 'soon' is not a duration; write it like 500ms, 30s, 5m, 1h30m or 2d",
    ),
    "a delay of 0": (
        "queues: {a: {retry: [0s]}}",
        "redrive.yaml:1:22: queue a, retry[0]: a delay of 0 is no delay; use shape requeue for immediate retries, "
        "or a delay from 1ms up",
    ),
    "no delays": (
        "queues: {a: {retry: []}}",
        "redrive.yaml:1:14: queue a, retry: is empty; name at least one delay, or say retry: false",
    ),
    "attempts of 0": (
        "queues: {a: {retry: {attempts: 0}}}",
        "redrive.yaml:1:22: queue a, retry.attempts: must be from 1 to 10000, not 0; attempts counts handler runs, "
        "the first one included: 1 means no retries",
    ),
    "attempts that are text": (
        "queues: {a: {retry: {attempts: '3'}}}",
        "redrive.yaml:1:22: queue a, retry.attempts: must be a whole number, not '3'",
    ),
    "several delays where there is one queue": (
        "queues: {a: {retry: {shape: per-queue, delays: [1s, 2s]}}}",
        "redrive.yaml:1:40: queue a, retry.delays: has 2 delays where 1 can be; "
        "shape per-queue has one retry queue; use ladder for several delays",
    ),
    "a wait template without the delay": (
        "queues: {a: {retry: {delays: [1s, 2s], wait: w}}}",
        "redrive.yaml:1:40: queue a, retry.wait: needs {delay} in it; without it two delays would share one queue",
    ),
    "an unknown placeholder": (
        "queues: {a: {retry: {wait: '{que}.{delay}'}}}",
        "redrive.yaml:1:22: queue a, retry.wait: {que} is not known here; did you mean `queue`?",
    ),
    "two queues that want one wait queue": (
        "queues:\n  a: {retry: {delays: [1s], wait: 'w.{delay}'}}\n  b: {retry: {delays: [1s], wait: 'w.{delay}'}}",
        "redrive.yaml:3:3: queue b: queue w.1s is wanted here and by queue a, with different settings; "
        "rename one, or give one of them its own naming template",
    ),
    "a queue named like another's wait queue": (
        "queues:\n  a: {retry: [1s]}\n  a.wait.1s: {}",
        "redrive.yaml:3:3: queue a.wait.1s: queue a.wait.1s is wanted here and by queue a, with different settings; "
        "rename one, or give one of them its own naming template",
    ),
    "a queue that is another's parking queue": (
        "queues:\n  a: {retry: {shape: per-queue}}\n  a.dlq: {}",
        "redrive.yaml:3:3: queue a.dlq: queue a.dlq already belongs to queue a; rename one",
    ),
    "a queue with one meaning twice": (
        "queues: {a: {}, a: {}}",
        "redrive.yaml:1:17: the file: has 'a' twice; keep one",
    ),
    "an exchange nobody declares": (
        "exchanges: {domain.events: topic}\nqueues: {a: {from: {domain.event: [x]}}}",
        "redrive.yaml:2:21: queue a, from.domain.event: there is no exchange domain.event; "
        "did you mean `domain.events`?",
    ),
    "a topic binding without keys": (
        TOPIC + "queues: {a: {from: e}}",
        "redrive.yaml:2:14: queue a, from.e: exchange e routes by key and none is given; "
        'write {e: ["some.key"]}, or "#" for all',
    ),
    "an exchange without a type": (
        "exchanges: {e: }",
        "redrive.yaml:1:13: exchange e: has no type; write e: topic",
    ),
    "an unknown exchange type": (
        "exchanges: {e: topik}",
        "redrive.yaml:1:13: exchange e: must be one of direct, topic, fanout, headers, not 'topik'; "
        "did you mean `topic`?",
    ),
    "a retry that never comes back": (
        TOPIC + "queues: {a: {from: {e: [user.created]}, retry: {shape: tiered, domain: user}}}",
        "redrive.yaml:2:14: queue a, from: a retried message comes back to exchange e as user.retry, "
        "which no binding of this queue matches; bind it with user.* or user.retry",
    ),
    "a tiered queue bound to nothing": (
        "queues: {a: {retry: {shape: tiered}}}",
        "redrive.yaml:1:14: queue a, retry: shape tiered needs to know its exchange, and it is bound to none; "
        "say retry: {exchange: NAME}",
    ),
    "a stream that should retry": (
        "queues: {a: {type: stream, retry: [1s]}}",
        "redrive.yaml:1:14: queue a, type: a stream can't retry: it neither rejects nor dead-letters; "
        "use a quorum queue, or retry: false",
    ),
    "a classic ladder": (
        "queues: {a: {type: classic, retry: [1s]}}",
        "redrive.yaml:1:14: queue a, type: shape ladder needs quorum queues; leave type out, or choose another shape",
    ),
    "an argument the shape sets": (
        "queues: {a: {arguments: {x-delivery-limit: 5}, retry: [1s]}}",
        "redrive.yaml:1:26: queue a, arguments.x-delivery-limit: x-delivery-limit is 20 in shape ladder, not 5; "
        "leave it out, or choose another shape",
    ),
    "a TTL that would kill into the retry loop": (
        "queues: {a: {arguments: {x-message-ttl: 1000}, retry: {shape: per-queue}}}",
        "redrive.yaml:1:26: queue a, arguments.x-message-ttl: in shape per-queue an expired message would enter "
        "the retry loop, where RabbitMQ drops it; leave x-message-ttl out, or use shape ladder, which parks it",
    ),
    "an overflow that would kill into the retry loop": (
        "services: {wms-a: {arguments: {x-max-length: 10}}}",
        "redrive.yaml:1:32: service wms-a, arguments.x-max-length: in shape service an overflowing message would "
        "enter the retry loop, where RabbitMQ drops it; add x-overflow: reject-publish, or use shape ladder, "
        "which parks it",
    ),
    "a type among the arguments": (
        "queues: {a: {arguments: {x-queue-type: quorum}}}",
        "redrive.yaml:1:26: queue a, arguments.x-queue-type: the queue's type has a key of its own; say type: quorum",
    ),
    "a name that YAML takes for a boolean": (
        "queues: {no: {}}",
        "redrive.yaml:1:10: the file: has the key no, which YAML takes for no text; put it in quotes",
    ),
    "an empty file": ("", "redrive.yaml:1:1: the file: is empty; start with: redrive init"),
    "a list": ("- a\n- b", "redrive.yaml:1:1: the file: must be a mapping, not a list"),
    "broken YAML": ("queues: {a: [}", "redrive.yaml:1:14: the file: is not YAML: while parsing a flow node"),
    "a tag": ("queues: !!python/object:os.system {}", "has a tag that is not known here"),
    "a document that refers to itself": ("queues: &a {b: *a}", "the file: refers to itself; write the alias out"),
    "native the wrong way round": (
        "queues: {a: {retry: {shape: native, min: 5m, max: 1m}}}",
        "redrive.yaml:1:37: queue a, retry.min: min (5m) is longer than max (1m); swap them",
    ),
    "an error in the defaults, once": (
        "defaults: {retry: {attempts: 0}}\nqueues: {a: , b: }",
        "redrive.yaml:1:20: defaults.retry.attempts: must be from 1 to 10000, not 0; attempts counts handler runs, "
        "the first one included: 1 means no retries",
    ),
    "two domains that share their tiers' keys": (
        'exchanges: {ev: topic}\nqueues:\n  billing.user: &u {from: {ev: ["user.*"]}, retry: {shape: tiered}}\n'
        "  crm.user: *u",
        "queue billing.user, retry: a retry sent to exchange ev.retry as user.30s would reach queue crm.user.retry.30s "
        "as well; give the two exchanges, domains or queues names of their own",
    ),
    "a DLX that two exchanges share": (
        "exchanges: {a: topic, b: topic}\ndefaults: {retry: {shape: tiered, dlx: dead}}\n"
        'queues: {x: {from: {a: ["x.*"]}}, y: {from: {b: ["y.*"]}}}',
        "queue x, retry: a dead letter sent to exchange dead would reach queue b.dlq as well",
    ),
    "a DLX that is the main exchange": (
        'exchanges: {a: topic}\nqueues: {all: {from: {a: ["#"]}, retry: {shape: requeue, dlx: "{exchange}"}}}',
        "queue all, retry: a dead letter sent to exchange a as all.dlq would reach queue all as well",
    ),
    "a retried queue that expires": (
        "queues: {a: {arguments: {x-expires: 1000}, retry: [1s]}}",
        "redrive.yaml:1:26: queue a, arguments.x-expires: a queue that expires is deleted with its messages, and its "
        "waiting retries have nowhere to go back to; leave x-expires out, or say retry: false",
    ),
    "a retried queue that goes with its consumer": (
        "queues: {a: {auto_delete: true, retry: {shape: per-queue}}}",
        "queue a, auto_delete: a queue that is deleted with its last consumer loses its messages",
    ),
    "a retried queue that a restart takes": (
        "queues: {a: {durable: false, retry: {shape: requeue, exchange: amq.topic}}}",
        "queue a, durable: a queue that is gone after a restart loses its messages",
    ),
    "a way back through an exchange that does not last": (
        'exchanges: {e: {type: topic, durable: false}}\nqueues: {u: {from: {e: ["u.*"]}, retry: {shape: tiered}}}',
        "queue u, from: a retried message comes back through exchange e, which does not outlive a restart",
    ),
    "a policy that deletes wait queues": (
        "queues: {a: {retry: [1s]}}\npolicies: {idle: {pattern: wait, definition: {expires: 5000}}}",
        "queue a, retry: policy idle matches queue a.wait.1s and deletes it with its messages when it is idle "
        "(expires); narrow the policy's pattern",
    ),
    "a policy that empties the parking queue": (
        "queues: {a: {retry: [1s]}}\npolicies: {old: {pattern: ^a, definition: {message-ttl: 5000}}}",
        "policy old matches queue a.parked and lets its messages expire (message-ttl)",
    ),
    "a policy that turns at-least-once off": (
        "queues: {a: {retry: [1s]}}\npolicies: {o: {pattern: ^a$, definition: {overflow: drop-head}}}",
        "policy o matches queue a and turns at-least-once dead-lettering off (overflow)",
    ),
    "an operator policy that limits parking": (
        "queues: {a: {retry: [1s]}}\noperator_policies: {o: {pattern: ., definition: {max-length: 10}}}",
        "operator policy o matches queue a.parked and lets it discard messages (max-length)",
    ),
    "a dead-letter policy on the DLQ itself": (
        "queues: {a: {retry: {shape: per-queue}}}\n"
        "policies: {d: {pattern: .*, definition: {dead-letter-exchange: amq.topic}}}",
        "policy d matches queue a.dlq and sends its messages elsewhere (dead-letter-exchange)",
    ),
    "a service without a name": ("services: {'': }", "service : must be text, not ''"),
    "a service that should not retry": (
        "services: {wms-a: {retry: false}}",
        "service wms-a, retry: a service always has its retry loop; list it under queues: instead",
    ),
    "an argument that JSON can't hold": (
        "queues: {a: {arguments: {x-foo: .nan}}}",
        "queue a, arguments.x-foo: is nan, which JSON has no word for",
    ),
    "a binding argument that says nothing": (
        "exchanges: {h: headers}\nqueues: {a: {from: {h: [{arguments: {kind: }}]}}}",
        "arguments.kind: is empty; leave it out",
    ),
    "a number beyond AMQP": (
        "queues: {a: {arguments: {x-foo: 0x" + "f" * 5000 + "}}}",
        "is a number of more than 64 bits, which AMQP can't carry",
    ),
    "a vhost that is an enormous number": ("vhost: 0x" + "f" * 5000, "must be text, not a number that long"),
    "two names for one alternate exchange": (
        "exchanges: {a: {type: topic, alternate: b, arguments: {alternate-exchange: c}}, b: fanout}",
        "exchange a, alternate: alternate and arguments.alternate-exchange name two exchanges; keep alternate",
    ),
    "a tab": ("queues:\n\ta: {}", "a line begins with a tab; YAML wants spaces"),
    "a queue that is also a service": (
        "queues: {wms.queue.wms-a: {from: amq.fanout, retry: {shape: service, service: wms-a}}}\nservices: [wms-a]",
        "queue wms.queue.wms-a",
    ),
    "a service twice": ("services: [a-b, a-b]", "services[1]: a-b is listed twice; keep one"),
    "a policy without a pattern": (
        "policies: {p: {definition: {max-length: 1}}}",
        "redrive.yaml:1:12: policy p: has no pattern",
    ),
    "a binding to the default exchange": (
        "queues: {a: {from: {'': [a]}}}",
        "queue a, from: nothing can be bound to the default exchange; leave it out",
    ),
    "an alternate exchange nobody declares": (
        "exchanges: {e: {type: topic, alternate: f}}",
        "exchange e, alternate: there is no exchange f",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_declaration_is_refused_with_a_sentence(case: str) -> None:
    text, sentence = CASES[case]
    with pytest.raises(InvalidDeclaration) as raised:
        compile_declaration(read_declaration(text, file="redrive.yaml"))
    assert sentence in str(raised.value)


def test_an_exact_sentence_is_the_whole_message() -> None:
    """The table above looks for a part; a plain case shows that nothing else is said."""
    text, sentence = CASES["an error in the defaults, once"]
    with pytest.raises(InvalidDeclaration) as raised:
        read_declaration(text, file="redrive.yaml")
    assert str(raised.value) == sentence


def test_all_problems_are_named_at_once_in_reading_order() -> None:
    with pytest.raises(InvalidDeclaration) as raised:
        read_declaration("queues:\n  a: {retry: [0s], tipe: quorum}\n  b: {retry: {attempts: -1}}\nexchangez: {}\n")
    assert [(one.code, one.position.line if one.position else 0) for one in raised.value.findings] == [
        ("invalid-value", 2),
        ("unknown-key", 2),
        ("invalid-value", 3),
        ("unknown-key", 4),
    ]


@pytest.mark.parametrize(
    ("name", "problem"),
    [("a" * 256, "255 bytes"), ("é" * 128, "255 bytes"), ("amq.mine", "amq."), ("line\\nbreak", "control")],
)
def test_a_name_rabbitmq_refuses_is_refused_here(name: str, problem: str) -> None:
    for text in (f'queues: {{"{name}": {{}}}}', f'exchanges: {{"{name}": topic}}'):
        with pytest.raises(InvalidDeclaration) as raised:
            compile_declaration(read_declaration(text))
        assert problem in str(raised.value)


def test_a_name_that_only_grows_too_long_by_its_shape_is_refused_too() -> None:
    name = "q" * 250
    with pytest.raises(InvalidDeclaration) as raised:
        compile_declaration(read_declaration(f"queues: {{{name}: {{retry: [30s]}}}}"))
    assert f"its queue {name}.wait.30s" in str(raised.value)


def test_every_delay_of_a_list_that_is_none_is_named() -> None:
    with pytest.raises(InvalidDeclaration) as raised:
        read_declaration("queues:\n  a: {retry: [30, 1m, soon]}\n  b: {retry: {shape: ladder, delays: [0s, x]}}\n")
    assert [one.address for one in raised.value.findings] == [
        "queue a, retry[0]",
        "queue a, retry[2]",
        "queue b, retry.delays[0]",
        "queue b, retry.delays[1]",
    ]


def test_what_does_not_fit_together_is_named_when_everything_can_be_read() -> None:
    text = "queues: {a: {from: {nope: [x]}, retry: [DELAY]}, b: {from: {nowhere: [x]}, retry: [30s]}}"
    with pytest.raises(InvalidDeclaration, match="soon") as raised:
        compile_declaration(read_declaration(text.replace("DELAY", "soon")))
    assert len(raised.value.findings) == 1
    with pytest.raises(InvalidDeclaration) as raised:
        compile_declaration(read_declaration(text.replace("DELAY", "30s")))
    assert [one.code for one in raised.value.findings] == ["unknown-exchange"] * 2


def test_a_delay_above_the_brokers_limit_is_refused() -> None:
    with pytest.raises(InvalidDeclaration) as raised:
        read_declaration("queues: {a: {retry: [9000000d]}}")
    assert "is longer than RabbitMQ can hold a message; the longest delay is" in str(raised.value)


def test_aliases_that_multiply_end_in_a_sentence() -> None:
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    for previous, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{previous}'] * 9)}]")
    with pytest.raises(InvalidDeclaration) as raised:
        read_declaration("\n".join(lines))
    assert "grows beyond all measure" in str(raised.value)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_ends_in_a_sentence(opening: str) -> None:
    for count in (150, 5_000, 500_000):
        with pytest.raises(InvalidDeclaration):
            read_declaration(opening * count)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["30s", "topic"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                "vhost exchanges defaults queues services policies operator_policies from type durable arguments retry"
                " service shape delays attempts wait parking exchange domain dlx dlq min max key pattern definition"
                " e a b".split()
            )
            | st.text(max_size=5),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)


@settings(max_examples=examples(400), deadline=None)
@given(plain)
def test_any_data_compiles_or_is_refused(data: object) -> None:
    sections = data if isinstance(data, dict) else {"queues": data}
    try:
        json.loads(write_definitions(compile_declaration(declare(**sections)).topology), parse_constant=pytest.fail)
    except InvalidDeclaration as refused:
        assert refused.findings
        assert all(one.summary for one in refused.findings)


@settings(max_examples=examples(400), deadline=None)
@given(
    st.text(max_size=60)
    | st.text(alphabet="{}[]:,-?&*!|>'\"%@` \n\tabé0.<=~", max_size=60)
    | st.binary(max_size=40).map(lambda data: data.decode("latin-1"))
)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        compile_declaration(read_declaration(text))
    except InvalidDeclaration as refused:
        assert all(one.position is not None for one in refused.findings)


def test_a_service_without_a_name_does_not_hide_the_problems_after_it() -> None:
    with pytest.raises(InvalidDeclaration) as caught:
        read_declaration('services: {"": {}, billing: {quues: 1}}', file="redrive.yaml")
    assert [(one.address, one.summary) for one in caught.value.findings] == [
        ("service ", "must be text, not ''"),
        ("service billing, quues", "'quues' is not known here"),
    ]


def test_the_position_of_an_index_past_the_end_is_the_list() -> None:
    source = YamlSource("queues:\n  orders:\n    retry: [30s, 5m]\n", "redrive.yaml")
    at_the_list = source.locate(("queues", "orders", "retry"))
    assert source.locate(("queues", "orders", "retry", 1)) != at_the_list
    for beyond in (("retry", 2), ("retry", 2, 1), ("retry", "delays", 0), ("retry", 2, "x", 0, 1)):
        position = source.locate(("queues", "orders", *beyond))
        assert (position.line, position.column) == (at_the_list.line, at_the_list.column), beyond
