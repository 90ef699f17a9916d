"""The benchmark of AMQP clients on a real broker: `python -m bench.amqp`.

Four workloads, several clients, one broker of its own on loopback. Each client is a program of its own (`clients/`)
that is told what to do by its command line and answers with one line of JSON (`clients/contract.py`). The harness runs
all of them interleaved and checks after each run where every message is; `report` turns what came out into a table.

    cases      what is measured: the workloads, the clients, how many messages each gets
    programs   makes the clients available: compiles, installs, says what could not be had
    broker     the node, and the queues of one case
    shovel     the one client that lives in the broker
    harness    runs the cases
    report     medians, spreads and ratios, as text, Markdown and JSON
"""
