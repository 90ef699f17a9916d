"""The declaration: its short forms, how defaults merge, and that Python and YAML say the same."""

from datetime import timedelta

import pytest

from redrive.core import InvalidDeclaration
from redrive.topology import (
    Binding,
    Declaration,
    DeclaredExchange,
    DestinationType,
    LadderShape,
    PerQueueShape,
    ServiceShape,
    TieredShape,
    compile_declaration,
    declare,
    read_declaration,
)
from redrive.topology.declaration.model import DeclaredAutoRetry


def read(text: str) -> Declaration:
    return read_declaration(text, file="redrive.yaml")


def test_the_short_form_of_retry_is_a_ladder() -> None:
    (queue,) = read("queues: {orders: {retry: [30s, 5m, 30m]}}").queues
    assert queue.retry == LadderShape(delays=["30s", "5m", "30m"])


def test_one_delay_needs_no_brackets() -> None:
    (queue,) = read("queues: {orders: {retry: 90s}}").queues
    assert queue.retry == LadderShape(delays=["1m30s"])


def test_a_queue_without_retry_is_plain() -> None:
    (queue,) = read("queues: {audit: }").queues
    assert queue.retry is None


def test_yaml_and_python_say_the_same() -> None:
    written = read(
        """
        vhost: shop
        exchanges: {domain.events: topic, other: {type: fanout, from: {domain.events: ["x.#"]}}}
        queues:
          orders:
            from: {domain.events: ["orders.#", "refunds.*"], other: }
            retry: {delays: [30s, 5m], attempts: 5}
          invoices: {from: {domain.events: [invoices]}, retry: {shape: per-queue, delays: [15s]}}
        services: [wms-cincout]
        policies: {limits: {pattern: "^a", definition: {max-length: 5}, apply_to: queues, priority: 2}}
        """
    )
    said = declare(
        vhost="shop",
        exchanges={"domain.events": "topic", "other": {"type": "fanout", "from": {"domain.events": ["x.#"]}}},
        queues={
            "orders": {
                "from": {"domain.events": ["orders.#", "refunds.*"], "other": None},
                "retry": LadderShape(delays=[timedelta(seconds=30), "5m"], attempts=5),
            },
            "invoices": {"from": {"domain.events": "invoices"}, "retry": PerQueueShape(delays=["15s"])},
        },
        services=["wms-cincout"],
        policies={"limits": {"pattern": "^a", "definition": {"max-length": 5}, "apply_to": "queues", "priority": 2}},
    )
    assert said == written
    assert compile_declaration(said).topology == compile_declaration(written).topology


def test_defaults_merge_key_by_key() -> None:
    declaration = read(
        """
        exchanges: {e: topic}
        defaults: {retry: {shape: tiered, exchange: e, delays: [10s], attempts: 7}, type: quorum}
        queues:
          a: {from: {e: ["a.*"]}, retry: {domain: a}}
          b: {from: {e: ["b.*"]}, retry: {delays: [20s, 40s]}, type: classic}
          c: {from: {e: ["c.*"]}}
        """
    )
    a, b, c = declaration.queues
    assert a.retry == TieredShape(exchange="e", delays=["10s"], attempts=7, domain="a")
    assert b.retry == TieredShape(exchange="e", delays=["20s", "40s"], attempts=7)
    assert c.retry == TieredShape(exchange="e", delays=["10s"], attempts=7)
    assert (a.type, b.type, c.type) == ("quorum", "classic", "quorum")


def test_defaults_of_one_shape_do_not_leak_into_another() -> None:
    declaration = read(
        """
        defaults: {retry: {shape: per-queue, dlq: "{queue}.dead", attempts: 9}}
        queues: {a: {retry: {shape: ladder, delays: [1s]}}, b: }
        """
    )
    a, b = declaration.queues
    assert a.retry == LadderShape(delays=["1s"])
    assert b.retry == PerQueueShape(dlq="{queue}.dead", attempts=9)


def test_a_queue_can_refuse_the_default_retry() -> None:
    (queue,) = read("defaults: {retry: [1s]}\nqueues: {a: {retry: false}}").queues
    assert queue.retry is None


def test_default_arguments_merge_with_a_queue_of_its_own() -> None:
    (queue,) = read(
        "defaults: {arguments: {x-max-priority: 3}}\nqueues: {a: {arguments: {x-single-active-consumer: true}}}"
    ).queues
    assert queue.arguments.thaw() == {"x-max-priority": 3, "x-single-active-consumer": True}


def test_a_shape_object_is_a_default_as_good_as_its_mapping() -> None:
    said = declare(
        defaults={"retry": PerQueueShape(attempts=9, dlq="{queue}.dead")},
        queues={"a": {}, "b": {"retry": {"delays": ["3s"]}}},
        services=["wms-x"],
    )
    a, b, service = said.queues
    assert a.retry == PerQueueShape(attempts=9, dlq="{queue}.dead")
    assert b.retry == PerQueueShape(attempts=9, dlq="{queue}.dead", delays=["3s"])
    assert service.retry == ServiceShape(service="wms-x")
    (slow,) = declare(defaults={"retry": ServiceShape(attempts=3)}, services=["wms-y"]).queues
    assert slow.retry == ServiceShape(service="wms-y", attempts=3)


def test_attempts_can_not_be_none_where_a_number_is_needed() -> None:
    with pytest.raises(ValueError, match="must be a whole number, not nothing"):
        PerQueueShape(attempts=None)  # type: ignore[arg-type]


def test_an_explicit_type_is_written_on_every_queue_of_the_shape() -> None:
    compiled = compile_declaration(read("queues: {a: {type: classic, retry: {shape: per-queue}}, b: {type: classic}}"))
    assert {queue.arguments.get("x-queue-type") for queue in compiled.topology.queues} == {"classic"}


def test_services_may_have_options_each() -> None:
    plain, slow = read(
        "services: {wms-a: , wms-b: {retry: {delays: [1m], attempts: 3}, from: {amq.topic: [b]}}}"
    ).queues
    assert plain.name == "wms.queue.wms-a"
    assert plain.retry == ServiceShape(service="wms-a")
    assert slow.retry == ServiceShape(service="wms-b", delays=["1m"], attempts=3)
    assert [source.exchange for source in slow.sources] == ["amq.topic"]
    assert slow.service == "wms-b"


@pytest.mark.parametrize(
    ("service", "prefix"),
    [("wms-cincout", "wms"), ("xyz-service", "xyz"), ("noprefix", "default"), ("a-b-c", "a"), ("-x", "default")],
)
def test_a_service_prefix_ends_at_the_first_hyphen(service: str, prefix: str) -> None:
    (queue,) = declare(services=[service]).queues
    assert queue.name == f"{prefix}.queue.{service}"


def test_yaml_anchors_and_merges_work() -> None:
    a, b = read("queues: {a: &base {retry: [1s], service: s}, b: {<<: *base, retry: [2s]}}").queues
    assert (a.retry, b.retry) == (LadderShape(delays=["1s"]), LadderShape(delays=["2s"]))
    assert b.service == "s"


def test_a_binding_may_have_arguments() -> None:
    (queue,) = read(
        "exchanges: {h: headers}\nqueues: {a: {from: {h: [{arguments: {x-match: all, kind: order}}]}}}"
    ).queues
    assert queue.sources[0].arguments.thaw() == {"x-match": "all", "kind": "order"}


def test_the_vhost_can_be_chosen_when_compiling() -> None:
    compiled = compile_declaration(read("queues: {a: {retry: [1s]}}"), vhost="test-1")
    assert {one.vhost for one in compiled.topology.queues} == {"test-1"}
    assert [one.name for one in compiled.topology.vhosts] == ["test-1"]
    assert compiled.retry_routes[0].vhost == "test-1"


def test_two_spellings_of_a_delay_are_one_wait_queue() -> None:
    compiled = compile_declaration(read("queues: {a: {retry: [60s, 1m, 90s]}}"))
    assert [queue.name for queue in compiled.topology.queues] == ["a", "a.wait.1m", "a.wait.1m30s", "a.parked"]
    assert compiled.retry_routes[0].attempts == 4


def test_a_name_that_is_another_names_suffix_keeps_its_own_queues() -> None:
    """`bar` and `foo.bar`: wherever delays are shared by suffix both would get one's messages; here neither is."""
    compiled = compile_declaration(read("queues: {bar: {retry: [1s]}, foo.bar: {retry: [1s]}}"))
    targets = {queue.name: queue.dead_letter_routing_key for queue in compiled.topology.queues}
    assert targets["bar.wait.1s"] == "bar"
    assert targets["foo.bar.wait.1s"] == "foo.bar"
    assert compiled.topology.bindings == ()


def test_two_queues_of_one_domain_share_its_tiers() -> None:
    compiled = compile_declaration(
        read(
            """
            exchanges: {e: topic}
            defaults: {retry: {shape: tiered, domain: user, delays: [1s], wait: "e.{domain}.{delay}"}}
            queues: {a: {from: {e: ["user.*"]}}, b: {from: {e: ["user.#"]}}}
            """
        )
    )
    assert [queue.name for queue in compiled.topology.queues] == ["a", "e.user.1s", "e.dlq", "b"]


def test_a_quorum_queue_of_a_documented_shape_dead_letters_at_least_once() -> None:
    compiled = compile_declaration(read("services: {wms-a: {type: quorum}}"))
    for queue in compiled.topology.queues:
        assert queue.type == "quorum"
        assert queue.delivery_limit == 1_000_000
        dead_letters = queue.dead_letter_exchange is not None
        assert queue.arguments.get("x-dead-letter-strategy") == ("at-least-once" if dead_letters else None)


def test_the_literal_form_of_the_quorum_document_can_be_chosen() -> None:
    compiled = compile_declaration(
        read("queues: {a: {retry: {shape: quorum, at_least_once: false, safe_limits: false}}}")
    )
    assert [queue.arguments.thaw() for queue in compiled.topology.queues] == [
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "a.retry", "x-queue-type": "quorum"},
        {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "a",
            "x-message-ttl": 30000,
            "x-queue-type": "quorum",
        },
        {"x-queue-type": "quorum"},
    ]


def test_python_reports_where_without_a_file() -> None:
    with pytest.raises(InvalidDeclaration) as raised:
        declare(queues={"orders": {"retry": {"delayz": ["1s"]}}})
    assert str(raised.value) == (
        "queue orders, retry.delayz: shape ladder has no option 'delayz'; did you mean `delays`?"
    )


def test_auto_retry_is_a_default_that_one_queue_changes() -> None:
    declaration = read_declaration(
        """
defaults: {auto_retry: {attempts: 5, first: 2s}}
queues:
  orders: {}
  mail: {auto_retry: {attempts: 1, max: 5m, settle: 1h}}
  audit: {auto_retry: false}
"""
    )
    said = {one.name: one.auto_retry for one in declaration.queues}
    assert said == {
        "orders": DeclaredAutoRetry(attempts=5, first_ms=2_000),
        "mail": DeclaredAutoRetry(attempts=1, first_ms=2_000, max_ms=300_000, settle_ms=3_600_000),
        "audit": DeclaredAutoRetry(is_on=False, attempts=5, first_ms=2_000),
    }
    assert read_declaration("queues: {orders: {auto_retry: true}}").queues[0].auto_retry == DeclaredAutoRetry()
    assert read_declaration("queues: {orders: {}}").queues[0].auto_retry is None
    assert read_declaration("services: {a-b: {auto_retry: true}}").queues[0].auto_retry == DeclaredAutoRetry()


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("30s", "must be true, false or a mapping, not '30s'"),
        ("{attempts: 0}", "must be from 1 to 1000, not 0"),
        ("{first: 5}", "must be a duration with its unit"),
        ("{first: 5m, max: 1m}", "first is longer than max"),
        ("{every: 30s}", "'every' is not known here"),
    ],
)
def test_an_invalid_auto_retry_is_refused_at_its_place(said: str, problem: str) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        read_declaration(f"queues: {{orders: {{auto_retry: {said}}}}}")
    (finding,) = refused.value.findings
    assert problem in finding.summary
    assert finding.address.startswith("queue orders, auto_retry")
    assert finding.position is not None


def test_what_an_exchange_takes_from_another_is_bound_from_there_to_here() -> None:
    text = "exchanges: {shop: topic, mail: {type: fanout, from: {shop: ['mail.#']}}}"
    assert compile_declaration(read(text)).topology.bindings == (
        Binding(
            source="shop",
            destination="mail",
            destination_type=DestinationType.EXCHANGE,
            routing_key="mail.#",
            vhost="/",
        ),
    )


def test_an_exchange_stays_when_the_broker_restarts_unless_it_says_otherwise() -> None:
    made = Declaration(exchanges=(DeclaredExchange(name="shop", type="topic"),))
    (exchange,) = compile_declaration(made).topology.exchanges
    assert (exchange.durable, exchange.auto_delete, exchange.internal) == (True, False, False)
