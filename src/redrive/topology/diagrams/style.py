"""Colours, fonts and the legend of an SVG: what makes it readable in light and in dark, without external files.

How an element looks in light stands in its own attributes, which every renderer reads, also those that know no style
sheet or no CSS variables (librsvg, Inkscape, tools that make PDFs). The style sheet has nothing but the colours of the
dark scheme: a rule of it wins over an attribute where it is understood. Boxes are told apart by shape and edge as well
as by colour, and lines by dashes, so that nothing depends on seeing colours.
"""

from collections.abc import Iterator
from functools import cache

from redrive.topology.diagrams.scene import Ink, Look

SANS = "ui-sans-serif,system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
MONOSPACE = "ui-monospace,SFMono-Regular,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace"

_LIGHT = {
    "bg": "#ffffff",
    "card": "#f6f8fa",
    "card-edge": "#e4e8ec",
    "ink": "#1f2328",
    "soft": "#59636e",
    "entry": "#fbf7ff",
    "entry-edge": "#8250df",
    "main": "#ffffff",
    "main-edge": "#0969da",
    "wait": "#fff9e6",
    "wait-edge": "#bf8700",
    "parking": "#fff3f2",
    "parking-edge": "#cf222e",
    "consumer": "#f0fbf3",
    "consumer-edge": "#1a7f37",
    "route": "#7d8590",
    "return": "#9a6700",
    "dead": "#cf222e",
    "consume": "#1a7f37",
    "publish": "#1a7f37",
}
_DARK = {
    "bg": "#0d1117",
    "card": "#151b23",
    "card-edge": "#262d36",
    "ink": "#f0f6fc",
    "soft": "#9198a1",
    "entry": "#1e1730",
    "entry-edge": "#ab7df8",
    "main": "#0d1a2d",
    "main-edge": "#4493f8",
    "wait": "#272115",
    "wait-edge": "#d29922",
    "parking": "#2b1618",
    "parking-edge": "#f85149",
    "consumer": "#10231a",
    "consumer-edge": "#3fb950",
    "route": "#8b949e",
    "return": "#e3b341",
    "dead": "#ff7b72",
    "consume": "#3fb950",
    "publish": "#56d364",
}
_FILL = {Look.RELAY: "entry", Look.LOOP: "wait", Look.GHOST: "card"}
_EDGE = {Look.RELAY: "entry-edge", Look.LOOP: "wait-edge", Look.GHOST: "soft", Look.CARD: "card-edge"}

LEGEND_BOXES = (
    (Look.ENTRY, "exchange"),
    (Look.MAIN, "queue"),
    (Look.WAIT, "waits, then returns"),
    (Look.LOOP, "retried in place"),
    (Look.PARKING, "dead letters"),
    (Look.CONSUMER, "consumer"),
)
LEGEND_WIRES = (
    (Ink.ROUTE, "routed by key"),
    (Ink.RETURN, "back when the delay is over"),
    (Ink.DEAD, "dead-lettered by the broker"),
    (Ink.PUBLISH, "published by the consumer"),
)


@cache
def attributes(*classes: str) -> str:
    """`class` and the looks of an element: of two classes that say the same, the later in the table wins."""
    looks: dict[str, str] = {}
    for name, said in _LOOKS.items():
        if name in classes:
            looks |= said
    shown = "".join(f' {name}="{_LIGHT.get(value, value)}"' for name, value in looks.items())
    return f'class="{" ".join(classes)}"{shown}'


def stylesheet() -> str:
    """The dark scheme's colours."""
    rules = "\n".join(_dark_rules())
    return f"svg{{color-scheme:light dark}}\n@media (prefers-color-scheme:dark){{\n{rules}\n}}"


def _dark_rules() -> Iterator[str]:
    for name, looks in _LOOKS.items():
        # What is no colour is repeated too ("none"), so that the later class wins here as it does in the attributes.
        colours = {key: _DARK.get(value, value) for key, value in looks.items() if key in ("fill", "stroke")}
        if colours:
            yield f".{name}{{{';'.join(f'{key}:{value}' for key, value in colours.items())}}}"


def _looks() -> Iterator[tuple[str, dict[str, str]]]:
    """Each class with what it says; colours by their names in the palettes."""
    yield "bg", {"fill": "bg"}
    yield "mono", {"font-family": MONOSPACE}
    yield "name", {"fill": "ink", "font-weight": "600"}
    yield "soft", {"fill": "soft"}
    yield "wire", {"fill": "none", "stroke-width": "1.5", "stroke-linejoin": "round"}
    yield "halo", {"fill": "none", "stroke": "bg", "stroke-width": "6"}
    yield "in-card", {"stroke": "card"}
    yield "box", {"stroke-width": "1.25"}
    for look in Look:
        fill, edge = _FILL.get(look, look.value), _EDGE.get(look, f"{look.value}-edge")
        yield look, {"fill": fill, "stroke": edge} | _EDGES.get(look, {})
    for ink in Ink:
        colour = "soft" if ink in (Ink.NOTE, Ink.HEADING) else ink.value
        yield ink, {"stroke": colour} | _DASHES.get(ink, {})
        yield f"{ink}-tip", {"fill": colour}
        yield f"{ink}-text", {"fill": "soft" if ink is Ink.ROUTE else colour} | _LETTERS.get(ink, {})
    yield "inner", {"fill": "none", "stroke-width": ".75"}


_EDGES = {
    Look.MAIN: {"stroke-width": "2"},
    Look.LOOP: {"stroke-dasharray": "4 3"},
    Look.GHOST: {"stroke-dasharray": "4 3"},
}
_DASHES = {Ink.PUBLISH: {"stroke-dasharray": "5 4"}}
_LETTERS = {Ink.HEADING: {"font-weight": "600", "letter-spacing": ".06em"}}
_LOOKS = dict(_looks())
