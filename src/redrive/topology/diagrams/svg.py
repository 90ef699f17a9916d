"""A topology as a self-contained SVG: a scene written as markup, with a title, a legend and tooltips.

Nothing is fetched and nothing runs; the only style sheet is inside. Every text is escaped here and nowhere else.
"""

from collections.abc import Iterable, Iterator
from html import escape

from redrive.topology.diagrams.graph import Graph, build_graph
from redrive.topology.diagrams.layout import MARGIN, lay_out
from redrive.topology.diagrams.scene import Box, Ink, Label, Look, Point, Scene, Wire
from redrive.topology.diagrams.style import LEGEND_BOXES, LEGEND_WIRES, SANS, attributes, stylesheet
from redrive.topology.diagrams.text import shorten, text_width, visible
from redrive.topology.model import Topology
from redrive.topology.retry_routes import RetryRoutes

_LEGEND_HEIGHT = 58
_LEGEND_PITCH = 24
_CORNER = 7.0
_HEAD = 7.0
_SOFT = attributes("soft")


def render_svg(topology: Topology, retry_routes: Iterable[RetryRoutes] = (), *, title: str = "Topology") -> str:
    """The picture of a topology as SVG text.

    Exchanges stand left, queues in the middle, consumers right; retries and dead letters hang below their queue, what
    several queues share stands at the bottom. `retry_routes` add what consumers publish themselves, drawn dashed.
    """
    graph = build_graph(topology, retry_routes)
    return "".join(_document(lay_out(graph), graph, visible(title)))


def _document(scene: Scene, graph: Graph, title: str) -> Iterator[str]:
    width = max(scene.width, 2 * MARGIN + text_width(title, 19, monospace=False))
    height = scene.height + _LEGEND_HEIGHT
    counted = _counted(graph)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="title desc" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'font-family="{SANS}">\n'
        f'<title id="title">{_text(title)}</title>\n<desc id="desc">{_text(counted)}</desc>\n'
        f"<style>\n{stylesheet()}\n</style>\n"
        f'<rect {attributes("bg")} width="100%" height="100%"/>\n'
        f'<text {attributes("name")} x="{MARGIN:g}" y="{MARGIN + 18:g}" font-size="19">{_text(title)}</text>\n'
        f'<text {_SOFT} x="{MARGIN:g}" y="{MARGIN + 37:g}" font-size="12">{_text(counted)}</text>\n'
    )
    yield from (_card(box) for box in scene.boxes if box.look == Look.CARD)
    for ink in _DRAWN_LAST:
        wires = [wire for wire in scene.wires if wire.ink == ink]
        # A halo separates lines that cross. It comes before every line of its kind, which may join one another.
        yield from (_halo(wire) for wire in wires if not wire.dot)
        yield from map(_wire, wires)
    yield from (_box(box) for box in scene.boxes if box.look != Look.CARD)
    yield from map(_label, scene.labels)
    yield from _legend(scene, scene.height + 8)
    yield "</svg>\n"


_DRAWN_LAST = (Ink.NOTE, Ink.ROUTE, Ink.DEAD, Ink.RETURN, Ink.PUBLISH, Ink.CONSUME)


def _counted(graph: Graph) -> str:
    def many(number: int, what: str) -> str:
        return f"{number:,} {what}{'' if number == 1 else 's'}"

    if not graph.queues and not graph.exchanges:
        return "No exchanges and no queues."
    bindings = sum(map(len, graph.routing.from_exchange.values()))
    parts = (many(len(graph.exchanges), "exchange"), many(len(graph.queues), "queue"), many(bindings, "binding"))
    return " · ".join(parts)


def _card(card: Box) -> str:
    place = f'x="{card.x:g}" y="{card.y:g}" width="{card.width:g}" height="{card.height:g}"'
    return f'<rect {attributes("box", "card")} {place} rx="12"/>\n'


def _box(box: Box) -> str:
    pill = box.look in (Look.ENTRY, Look.RELAY)
    radius = min(box.height / 2, 23) if pill else 7
    shape = f'x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}" rx="{radius:g}"'
    inset = radius * 0.7 + (3 if box.repeated else 0) if pill else 14
    parts = [f"<g>{_tooltip(box.tooltip)}"]
    parts.append(f"<rect {attributes('box', box.look)} {shape}/>")
    if box.repeated:
        parts.append(
            f'<rect {attributes("box", box.look, "inner")} x="{box.x + 3:g}" y="{box.y + 3:g}" '
            f'width="{box.width - 6:g}" height="{box.height - 6:g}" rx="{radius - 3:g}"/>'
        )
    tag_width = text_width(box.tag, 10, monospace=False) + 10 if box.tag else 0
    room = box.width - 2 * inset - tag_width
    title = shorten(box.title, room, box.title_size, monospace=True)
    y = box.middle - 2 if box.detail else box.middle + box.title_size * 0.35
    parts.append(
        f'<text {attributes("mono", "name")} x="{box.x + inset:g}" y="{y:g}" font-size="{box.title_size:g}">'
        f"{_text(title)}</text>"
    )
    if box.tag:
        parts.append(
            f'<text {_SOFT} x="{box.x + box.width - 12:g}" y="{y:g}" font-size="10" text-anchor="end">'
            f"{_text(box.tag)}</text>"
        )
    if box.detail:
        detail = shorten(box.detail, box.width - 2 * inset, 10.5, monospace=False)
        parts.append(
            f'<text {_SOFT} x="{box.x + inset:g}" y="{box.middle + 11.5:g}" font-size="10.5">{_text(detail)}</text>'
        )
    return "".join(parts) + "</g>\n"


def _halo(wire: Wire) -> str:
    classes = ("halo", "in-card") if wire.in_card else ("halo",)
    return f'<path {attributes(*classes)} d="{_path(wire.points)}"/>\n'


def _wire(wire: Wire) -> str:
    parts = [f'<g>{_tooltip(wire.tooltip)}<path {attributes("wire", wire.ink)} d="{_path(wire.points)}"/>']
    if wire.arrow:
        parts.append(_head(wire))
    if wire.dot:
        x, y = wire.points[-1]
        parts.append(f'<circle {attributes(f"{wire.ink}-tip")} cx="{x:g}" cy="{y:g}" r="3"/>')
    return "".join(parts) + "</g>\n"


def _path(points: tuple[Point, ...]) -> str:
    """Straight pieces with rounded corners."""
    said = [f"M{points[0][0]:g} {points[0][1]:g}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        radius = min(_CORNER, _distance(before, corner) / 2, _distance(corner, after) / 2)
        start, end = _towards(corner, before, radius), _towards(corner, after, radius)
        said.append(f"L{start[0]:g} {start[1]:g}Q{corner[0]:g} {corner[1]:g} {end[0]:g} {end[1]:g}")
    return "".join(said) + f"L{points[-1][0]:g} {points[-1][1]:g}"


def _head(wire: Wire) -> str:
    tip, before = wire.points[-1], wire.points[-2]
    base = _towards(tip, before, _HEAD)
    across = (_HEAD * 0.5, 0.0) if tip[0] == before[0] else (0.0, _HEAD * 0.5)
    left = base[0] - across[0], base[1] - across[1]
    right = base[0] + across[0], base[1] + across[1]
    return (
        f"<path {attributes(f'{wire.ink}-tip')} "
        f'd="M{tip[0]:g} {tip[1]:g}L{left[0]:g} {left[1]:g}L{right[0]:g} {right[1]:g}Z"/>'
    )


def _label(label: Label) -> str:
    classes = (f"{label.ink}-text", *(("mono",) if label.monospace else ()))
    anchor = "" if label.anchor == "start" else f' text-anchor="{label.anchor}"'
    return (
        f'<text {attributes(*classes)} x="{label.x:g}" y="{label.y:g}" font-size="{label.size:g}"{anchor}>'
        f"{_tooltip(label.tooltip)}{_text(label.text)}</text>\n"
    )


def _legend(scene: Scene, y: float) -> Iterator[str]:
    looks, inks = {box.look for box in scene.boxes}, {wire.ink for wire in scene.wires}
    repeated = any(box.repeated for box in scene.boxes)
    x = MARGIN
    for look, text in LEGEND_BOXES:
        if look in looks:
            radius = 6 if look == Look.ENTRY else 3
            yield f'<rect {attributes("box", look)} x="{x:g}" y="{y - 6:g}" width="22" height="12" rx="{radius}"/>'
            yield f'<text {_SOFT} x="{x + 30:g}" y="{y + 4:g}" font-size="11">{text}</text>\n'
            x += 30 + text_width(text, 11, monospace=False) + 16
    if repeated:
        yield f'<rect {attributes("box", Look.RELAY)} x="{x:g}" y="{y - 6:g}" width="22" height="12" rx="6"/>'
        inner = attributes("box", Look.RELAY, "inner")
        yield f'<rect {inner} x="{x + 2:g}" y="{y - 4:g}" width="18" height="8" rx="4"/>'
        yield f'<text {_SOFT} x="{x + 30:g}" y="{y + 4:g}" font-size="11">the same exchange, drawn again</text>\n'
    x, y = MARGIN, y + _LEGEND_PITCH
    for ink, text in LEGEND_WIRES:
        if ink in inks:
            yield _wire(Wire(points=((x, y), (x + 22, y)), ink=ink))
            yield f'<text {_SOFT} x="{x + 30:g}" y="{y + 4:g}" font-size="11">{text}</text>\n'
            x += 30 + text_width(text, 11, monospace=False) + 16


def _towards(start: Point, end: Point, distance: float) -> Point:
    whole = _distance(start, end)
    if whole == 0:
        return start
    return (
        start[0] + (end[0] - start[0]) * distance / whole,
        start[1] + (end[1] - start[1]) * distance / whole,
    )


def _distance(one: Point, other: Point) -> float:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def _tooltip(text: str) -> str:
    return f"<title>{_text(text)}</title>" if text else ""


def _text(text: str) -> str:
    return escape("\n".join(visible(line) for line in text.split("\n")))
