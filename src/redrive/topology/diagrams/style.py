"""Colours, fonts and the legend of an SVG: all that makes it readable in light and in dark, without anything fetched.

The palette is a set of CSS variables; a dark scheme changes only those. Boxes are told apart by shape and edge as well
as by colour, and lines by dashes, so that nothing depends on seeing colours.
"""

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


def stylesheet() -> str:
    """The CSS of every picture."""
    rules = [
        f"svg{{{_variables(_LIGHT)};color-scheme:light dark}}",
        f"@media (prefers-color-scheme:dark){{svg{{{_variables(_DARK)}}}}}",
        ".bg{fill:var(--bg)}",
        f"text{{font-family:{SANS};fill:var(--ink)}}",
        f".mono{{font-family:{MONOSPACE}}}",
        ".name{font-weight:600}",
        ".soft{fill:var(--soft)}",
        ".wire{fill:none;stroke-width:1.5;stroke-linejoin:round;stroke-linecap:butt}",
        ".halo{fill:none;stroke:var(--bg);stroke-width:6}",
        ".in-card{stroke:var(--card)}",
        ".box{stroke-width:1.25}",
    ]
    for look in Look:
        fill, edge = _FILL.get(look, look.value), _EDGE.get(look, f"{look.value}-edge")
        rules.append(f".{look}{{fill:var(--{fill});stroke:var(--{edge})}}")
        rules.append(f".{look}-bar{{fill:var(--{edge})}}")
    for ink in Ink:
        colour = "soft" if ink in (Ink.NOTE, Ink.HEADING) else ink.value
        rules.append(f".{ink}{{stroke:var(--{colour})}}.{ink}-tip{{fill:var(--{colour})}}")
        rules.append(f".{ink}-text{{fill:var(--{colour})}}")
    rules += [
        ".main{stroke-width:2}",
        ".inner{fill:none;stroke-width:.75}",
        ".loop,.ghost{stroke-dasharray:4 3}",
        ".publish{stroke-dasharray:5 4}",
        ".route-text{fill:var(--soft)}",
        ".heading-text{font-weight:600;letter-spacing:.06em}",
    ]
    return "\n".join(rules)


def _variables(colours: dict[str, str]) -> str:
    return ";".join(f"--{name}:{value}" for name, value in colours.items())
