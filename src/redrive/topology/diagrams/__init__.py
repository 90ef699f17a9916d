"""Pictures of a topology, as text: a tree for a terminal, Mermaid for a README, SVG for everything else.

All three read one graph (`graph`), which knows what each queue is for. A topology alone gives a picture, whoever wrote
it; the shapes' retry_routes add what the broker can't know: what consumers publish themselves, and how often they run.
"""

from redrive.topology.diagrams.mermaid import render_mermaid
from redrive.topology.diagrams.svg import render_svg
from redrive.topology.diagrams.tree import render_tree

__all__ = ["render_mermaid", "render_svg", "render_tree"]
