"""How long it takes to read, compile and export topologies of 1,000, 10,000 and 100,000 queues of each shape.

`python -m bench.topology` prints the table and keeps the raw numbers in bench/results/topology.json. Each case runs
in a process of its own, on one core, so that one case's garbage is not another's pause. Seconds are CPU seconds.
"""

import datetime
import gc
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "topology.json"
COUNTS = (1_000, 10_000, 100_000)


def declaration(shape: str, count: int) -> str:
    """A redrive.yaml with `count` queues of one shape, as a person or a generator would write it."""
    if shape == "service":
        return "services:\n" + "".join(f"  - team{index}-service\n" for index in range(count))
    queues = "".join(f'  team.q{index}:\n    from: {{domain.events: ["q{index}.*"]}}\n' for index in range(count))
    return f"exchanges: {{domain.events: topic}}\ndefaults: {{retry: {{shape: {shape}}}}}\nqueues:\n{queues}"


def measure(shape: str, count: int) -> dict[str, float]:
    """One case, in this process."""
    from redrive.topology import compile_declaration, read_declaration, write_definitions

    text = declaration(shape, count)
    gc.disable()  # as `redrive compile` does
    start = time.process_time()
    declared = read_declaration(text)
    read = time.process_time()
    compiled = compile_declaration(declared)
    built = time.process_time()
    exported = write_definitions(compiled.topology)
    end = time.process_time()
    return {
        "queues": len(compiled.topology.queues),
        "bytes": len(exported),
        "read_s": read - start,
        "compile_s": built - read,
        "export_s": end - built,
        "total_s": end - start,
    }


def main() -> None:
    """All cases, the table, the raw numbers."""
    from redrive.topology import SHAPES

    rows = []
    print(
        f"{'shape':<10} {'declared':>9} {'queues':>8} {'read':>7} {'compile':>8} {'export':>7} {'total':>7}"
        f" {'µs/queue':>9}"
    )
    for shape in SHAPES:
        for count in COUNTS:
            output = subprocess.run(
                [sys.executable, "-m", "bench.topology", shape, str(count)], capture_output=True, text=True, check=True
            )
            case = {"shape": shape, "declared": count, **json.loads(output.stdout)}
            rows.append(case)
            print(
                f"{shape:<10} {count:>9,} {case['queues']:>8,} {case['read_s']:>6.2f}s {case['compile_s']:>7.2f}s"
                f" {case['export_s']:>6.2f}s {case['total_s']:>6.2f}s {case['total_s'] / count * 1e6:>9.0f}",
                flush=True,
            )
    RESULTS.parent.mkdir(exist_ok=True)
    setting = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    RESULTS.write_text(json.dumps({"setting": setting, "cases": rows}, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
