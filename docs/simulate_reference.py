"""docs/reference/simulate.md: what `redrive simulate` takes, and what it shows for every example."""

import inspect
from pathlib import Path

from redrive.simulation import as_text, script, simulate, timeline
from redrive.topology import Compiled, compile_declaration, read_declaration

EXAMPLES = {
    "ladder": "orders",
    "native": "orders",
    "freeflow": "freeflow.user",
    "event-bus": "wms.queue.wms-cincout",
    "file-pipeline": "q.thumbnail",
    "ratatoskr": "my-service.events",
    "bookly": "reports",
}
STORY = "fail,retry-after:2m,crash,ok"
CYCLE = """
queues:
  orders:
    type: quorum
    retry: false
    arguments: {x-delivery-limit: 2, x-dead-letter-exchange: "", x-dead-letter-routing-key: orders.retry}
  orders.retry:
    retry: false
    arguments: {x-message-ttl: 30000, x-dead-letter-exchange: "", x-dead-letter-routing-key: orders}
"""

HEAD = """\
# redrive simulate

Made from the code by `make docs`. One message, one queue, no broker and no waiting: the topology is put on the embedded
broker's engine, the consumer decides by the [same table](decisions.md) and says the same commands as the runtime, and
time jumps from deadline to deadline.

```
redrive simulate FILE --queue Q [--fail N | --script WORDS] [--profile 3.10|4.0|4.3] [--exchange NAME --key KEY]
                 [--vhost V] [--format text|json]
```

FILE is a `redrive.yaml` or anybody's definitions.json. The message is published to the first exchange that the queue is
bound to, with a key that its binding matches, unless `--exchange` and `--key` say otherwise. `--fail 3` fails three
times and then succeeds; without it and without `--script` every run fails. What is random elsewhere (the pause of a
requeue) is the middle of its range here. A handler takes no time.

Times are since the publish. `--format json` has every event with its headers; its fields stay what they are as long as
`format` is 1.
"""


def simulate_reference() -> str:
    """The page."""
    parts = [
        HEAD.rstrip("\n"),
        "## Endings\n\n" + _table_of(timeline.__doc__),
        "## Words of a script\n\n" + _table_of(script.__doc__),
        *(_example(name, queue) for name, queue in EXAMPLES.items()),
        _cycle(),
    ]
    return "\n\n".join(parts) + "\n"


def _table_of(documentation: str | None) -> str:
    """The indented block of a module's docstring, and what follows it."""
    _, _, rest = inspect.cleandoc(documentation or "").partition("\n\n")
    block, _, prose = rest.partition("\n\n")
    text = "```text\n" + inspect.cleandoc(block) + "\n```"
    return f"{text}\n\n{prose.strip()}" if prose.strip() else text


def _example(name: str, queue: str) -> str:
    file = f"examples/{name}/redrive.yaml"
    compiled = _compiled((Path(__file__).parents[1] / file).read_text(encoding="utf-8"), file)
    shape = compiled.queue(queue).shape_name
    always, _ = simulate(compiled.topology, queue=queue, compiled=compiled)
    story, _ = simulate(compiled.topology, queue=queue, compiled=compiled, script=STORY)
    return "\n\n".join(
        [
            f"## {shape}: [{name}](../../{file})",
            _console(f"redrive simulate {file} --queue {queue}", as_text(always)),
            _console(f'redrive simulate {file} --queue {queue} --script "{STORY}"', as_text(story)),
        ]
    )


def _cycle() -> str:
    """A topology without shapes that loses a message."""
    compiled = _compiled(CYCLE, "cycle.yaml")
    lost, _ = simulate(compiled.topology, queue="orders", script="crash", profile="4.3")
    return "\n\n".join(
        [
            "## Somebody's definitions.json",
            "Without declared retries nobody decides: the script says what the consumer tells the broker. Here a poison"
            " message reaches a quorum queue's delivery limit, and the limit's deaths go into the retry loop. This"
            " `cycle.yaml` says the same as a broker's export (`GET /api/definitions`) would:",
            f"```yaml{CYCLE}```",
            _console(
                "redrive compile cycle.yaml --format definitions > definitions.json\n"
                "$ redrive simulate definitions.json --queue orders --script crash",
                as_text(lost),
            ),
        ]
    )


def _compiled(text: str, file: str) -> Compiled:
    return compile_declaration(read_declaration(text, file=file))


def _console(command: str, output: str) -> str:
    return "```console\n$ " + command + "\n" + output.rstrip("\n") + "\n```"
