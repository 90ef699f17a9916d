"""`redrive demo` as a user meets it, on the embedded broker."""

import re

import pytest

from tests.unit.demo.process import ENDS, SUM, ends_told, interrupt, run_demo, start_demo

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def output() -> str:
    """What a demo says that ends by itself."""
    code, output, errors = run_demo("--once")
    assert (code, errors) == (0, "")
    return output


def test_once_every_kind_of_order_comes_to_its_end_and_the_broker_agrees(output: str) -> None:
    assert ends_told(output) == ENDS
    assert output.splitlines()[-1] == SUM


def test_the_life_of_an_order_is_told_line_by_line_in_order(output: str) -> None:
    lines = [line.split(maxsplit=1)[1] for line in output.splitlines() if re.match(r" *\d+\.\d\ds  order-3 ", line)]
    assert lines == [
        "order-3   sent        the warehouse is down every time",
        "order-3   run 1 of 3  WarehouseDown: the warehouse does not answer → waits 1s in orders.wait.1s",
        "order-3   run 2 of 3  WarehouseDown: the warehouse does not answer → waits 3s in orders.wait.3s",
        "order-3   run 3 of 3  WarehouseDown: the warehouse does not answer → parked in orders.parked (attempts)",
    ]


def test_colour_is_for_terminals_and_for_those_who_insist(output: str) -> None:
    assert "\x1b[" not in output
    assert "\x1b[32mhandled" in run_demo("--once", FORCE_COLOR="1")[1]


def test_without_once_it_goes_on_until_ctrl_c_and_then_accounts_for_what_it_sent() -> None:
    process = start_demo()
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if "order-3" in line:
            break
    code, output, errors = interrupt(process)
    assert (code, errors) == (0, "")
    assert "Ctrl-C ends it." in "".join(said)
    assert ends_told(output) == ENDS[:3]
    assert output.splitlines()[-1].startswith("3 sent = 2 handled + 1 parked. The broker agrees")


@pytest.mark.parametrize("url", ["amqp://guest:guest@127.0.0.1:1/", "http://localhost", "nonsense"])
def test_a_broker_that_can_not_be_used_is_one_sentence(url: str) -> None:
    code, _, errors = run_demo("--once", "--url", url)
    assert code == 2
    assert errors.startswith("error: ")
    assert len(errors.splitlines()) == 1
