"""Pictures of a topology, as text: a tree for a terminal, Mermaid for a README, SVG for everything else.

All three read one graph (`graph`), which says what each queue is for. A topology alone is enough for a picture, also
one that Redrive did not compile; the shapes' `RetryRoutes` add what the broker can't know: what consumers publish
themselves, and how often they run.

    queue_roles, message_flows, graph   the analysis: main, wait and parking queues, and the ways between them
    tree, mermaid, svg                  the three renderers
    block_plan, geometry, layout        where everything stands in the SVG; `block_painter` and `entry_exchanges`
                                        draw its two parts into a `scene`
    style, text                         colours and legend; names as pictures may show them
"""

from redrive.topology.diagrams.mermaid import render_mermaid
from redrive.topology.diagrams.svg import render_svg
from redrive.topology.diagrams.tree import render_tree

__all__ = ["render_mermaid", "render_svg", "render_tree"]
