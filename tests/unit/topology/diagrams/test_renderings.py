"""Each rendering shows everything there is, whatever it is called."""

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings

from redrive.topology.diagrams import render_mermaid, render_svg, render_tree
from redrive.topology.diagrams.text import shorten, text_width, visible
from redrive.topology.model import Binding, Exchange, Queue, Topology
from redrive.topology.retry_routes import RetryRoutes
from tests.unit.topology.diagrams.samples import EXAMPLES, queue
from tests.unit.topology.diagrams.strategies import HOSTILE_NAMES, retry_routes, topologies

Render = Callable[[Topology, tuple[RetryRoutes, ...]], str]


def tree_words(topology: Topology, arranged: tuple[RetryRoutes, ...]) -> str:
    return render_tree(topology, arranged, colour=False)


def mermaid_words(topology: Topology, arranged: tuple[RetryRoutes, ...]) -> str:
    """What a reader of the chart sees: entities turned back as Mermaid does."""
    return re.sub(r"#(\d+);", lambda match: chr(int(match[1])), render_mermaid(topology, arranged))


def svg_words(topology: Topology, arranged: tuple[RetryRoutes, ...]) -> str:
    """Every text and tooltip of the picture."""
    return "\n".join(ElementTree.fromstring(render_svg(topology, arranged)).itertext())


RENDERINGS: list[Render] = [tree_words, mermaid_words, svg_words]


@pytest.mark.parametrize("render", RENDERINGS)
@pytest.mark.parametrize("example", EXAMPLES)
def test_every_exchange_queue_and_key_of_an_example_is_shown(example: str, render: Render) -> None:
    topology, arranged = EXAMPLES[example]()
    shown = render(topology, arranged)
    for name in [*(one.name for one in topology.queues), *(one.name for one in topology.exchanges)]:
        assert name in shown
    for binding in topology.bindings:
        assert binding.routing_key in shown


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_binding_of_an_example_stands_in_a_tooltip_of_the_svg(name: str) -> None:
    topology, arranged = EXAMPLES[name]()
    shown = svg_words(topology, arranged)
    for binding in topology.bindings:
        assert f"{binding.source} → " in shown
        assert binding.destination in shown


@pytest.mark.parametrize("render", RENDERINGS)
@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_any_name_survives(name: str, render: Render) -> None:
    topology = Topology(
        exchanges=(Exchange(name=name, type="topic"),),
        queues=(queue(name, dead_letter_exchange="", dead_letter_routing_key=f"{name}2"), Queue(name=f"{name}2")),
        bindings=(Binding(source=name, destination=name, routing_key=name),),
    )
    shown = render(topology, ())
    assert visible(name) in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_a_hostile_name_is_no_markup_in_the_svg() -> None:
    root = ElementTree.fromstring(render_svg(Topology(queues=(Queue(name="<script>alert(1)</script>"),))))
    assert not [element for element in root.iter() if element.tag.endswith("script")]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_mermaid_line_holds_no_syntax_from_a_name(name: str) -> None:
    chart = render_mermaid(Topology(queues=(Queue(name=name),)))
    (line,) = (line for line in chart.splitlines() if "[(" in line)
    identifier, _, rest = line.strip().partition("[(")
    assert re.fullmatch(r"[a-z0-9_]+", identifier)
    label = rest.removeprefix('"').removesuffix('")]').replace("<br/>", "")
    assert not set('"<>&[]{}()|`') & set(label)


def test_identifiers_in_mermaid_do_not_depend_on_other_queues() -> None:
    alone = render_mermaid(Topology(queues=(Queue(name="orders"),)))
    crowded = render_mermaid(Topology(queues=(Queue(name="a"), Queue(name="orders"), Queue(name="Orders"))))
    assert set(alone.splitlines()) < set(crowded.splitlines())
    assert len({line for line in crowded.splitlines() if "[(" in line}) == 3


def test_a_long_name_is_shortened_in_the_middle_and_whole_in_its_tooltip() -> None:
    name = "start-" + "x" * 240 + "-end"
    root = ElementTree.fromstring(render_svg(Topology(queues=(Queue(name=name),))))
    space = "{http://www.w3.org/2000/svg}"
    titles = [element.text or "" for element in root.iter(f"{space}text")]
    tooltips = [element.text or "" for element in root.iter(f"{space}title")]
    assert any(title.startswith("start-") and "…" in title and title.endswith("-end") for title in titles)
    assert any(name in tooltip for tooltip in tooltips)


@pytest.mark.parametrize("text", ["short", "x" * 300, "漢字" * 60, "🐇" * 99])
def test_a_shortened_text_fits(text: str) -> None:
    assert text_width(shorten(text, 120, 12, monospace=True), 12, monospace=True) <= 120


def test_the_svg_needs_nothing_from_outside_and_names_itself() -> None:
    topology, arranged = EXAMPLES["ladder"]()
    picture = render_svg(topology, arranged, title="Orders & more")
    root = ElementTree.fromstring(picture)
    assert root.get("role") == "img"
    assert next(iter(root)).text == "Orders & more"
    assert "prefers-color-scheme:dark" in picture
    assert not re.search(r"(href|src|url\(|@import|@font-face)", picture)


def test_the_tree_of_a_ladder_reads_from_exchange_to_parking() -> None:
    topology, arranged = EXAMPLES["ladder"]()
    assert render_tree(topology, arranged, colour=False) == (
        "domain.events  topic\n"
        "└─ orders.# → orders  quorum · delivery limit 20 · at-least-once · ladder · up to 4 runs\n"
        "   ├─ retry 1 ┄▸ orders.wait.30s  wait 30s → orders · quorum · at-least-once\n"
        "   ├─ retry 2 ┄▸ orders.wait.5m  wait 5m → orders · quorum · at-least-once\n"
        "   ├─ retry 3 ┄▸ orders.wait.30m  wait 30m → orders · quorum · at-least-once\n"
        "   └─ delivery limit 20 ─▸ or after 4 runs ┄▸ orders.parked  dead letters · quorum\n"
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_tree_describes_every_queue_once(name: str) -> None:
    topology, arranged = EXAMPLES[name]()
    lines = render_tree(topology, arranged, colour=False).splitlines()
    for one in topology.queues:
        assert sum(f" {one.name}  " in line for line in lines) == 1


def test_colours_add_nothing_but_escapes() -> None:
    for example in EXAMPLES.values():
        topology, arranged = example()
        coloured = render_tree(topology, arranged, colour=True)
        assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == render_tree(topology, arranged, colour=False)
        assert "\x1b[" in coloured


def test_an_empty_topology_says_so() -> None:
    assert render_tree(Topology(), colour=True) == "(no exchanges, no queues)\n"
    assert "no exchanges, no queues" in render_mermaid(Topology())
    assert "No exchanges and no queues." in svg_words(Topology(), ())


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(topologies, retry_routes)
def test_any_topology_is_drawn_with_all_its_queues_and_exchanges(
    topology: Topology, arranged: tuple[RetryRoutes, ...]
) -> None:
    for render in RENDERINGS:
        shown = render(topology, arranged)
        for name in [*(one.name for one in topology.queues), *(one.name for one in topology.exchanges)]:
            assert visible(name) in shown


DRAWN = ("rect", "path", "circle", "text")


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_svg_says_its_colours_in_attributes_for_renderers_that_know_no_style_sheet(name: str) -> None:
    """Without them librsvg, Inkscape and what makes PDFs draw black boxes: they know no CSS variables."""
    topology, arranged = EXAMPLES[name]()
    picture = render_svg(topology, arranged)
    root = ElementTree.fromstring(picture)
    drawn = [one for one in root.iter() if one.tag.rpartition("}")[2] in DRAWN]
    assert drawn
    for one in drawn:
        colours = [one.get(key, "") for key in ("fill", "stroke")]
        assert any(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours), one.attrib
        assert one.get("fill"), f"black by default: {one.attrib}"
    assert "var(" not in picture


def test_the_dark_scheme_says_every_colour_again_with_the_same_precedence() -> None:
    topology, arranged = EXAMPLES["ladder"]()
    picture = render_svg(topology, arranged)
    sheet = picture.partition("<style>")[2].partition("</style>")[0]
    dark = dict(re.findall(r"^\.([\w-]+)\{(.*)\}$", sheet, re.MULTILINE))
    root = ElementTree.fromstring(picture)
    for one in root.iter():
        classes = one.get("class", "").split()
        for key in ("fill", "stroke"):
            said = [dark[name] for name in dark if name in classes and f"{key}:" in dark[name]]
            assert bool(said) == (one.get(key) is not None), one.attrib
            if said:
                assert (f"{key}:none" in said[-1]) == (one.get(key) == "none")
