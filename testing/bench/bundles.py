"""Clone bundles: a run against a shell loop, a run with nothing to do, and the cost of a clone.

    python -m testing.bench.bundles --versitygw BINARY             # everything, with the bars
    python -m testing.bench.bundles --versitygw BINARY run idle    # some of it
    python -m testing.bench.bundles --versitygw BINARY clone --repository PATH

Both sides use the same hg, the same versitygw (the object store of the cluster, here on a loopback
port) and the same made-up repositories, in one run.

| part  | figure                                                          | bar        |
| ----- | --------------------------------------------------------------- | ---------- |
| run   | wall of a run over 200 small repositories against a shell loop  | <= 60 %    |
| idle  | a run over 1,000 repositories with nothing to do                | <= 3 s     |
| clone | CPU of `hg serve` for a clone with a bundle against one without | <= 1 %     |
| clone | wall of a clone of a stream bundle against `hg clone --stream` of a path | <= 1.5 x |
| kill  | faults after 30 killed runs (-9) and a run to the end           | 0          |

Runs are killed at random points of their work, while 15 % of the connections to the store fail.

The clones of the part `clone` are kept until its end: some 25 times the size of the repository.

The shell loop is `hg bundle` and curl for each kind in turn. A run does the same, verifies each
bundle by a real clone, and publishes it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.bundles.decide.plan import Action
from testing.bench.bundles_clone import bench_clone
from testing.bench.bundles_kill import bench_kill
from testing.bench.bundles_site import (
    HG,
    KINDS,
    ROUNDS,
    TYPES,
    WHO,
    Site,
    children,
    environment,
    gateway,
    make_site,
    show,
)
from testing.bench.repos import Size, generate

if TYPE_CHECKING:
    from collections.abc import Sequence

BARS: Final = {"run": 0.6, "idle": 3.0}


def shell_loop(site: Site, names: Sequence[str], url: str, root: Path) -> float:
    """Only generate and upload, as a script of a few lines would."""
    lines = ["set -e"]
    for name in names:
        for kind in KINDS:
            file = root / "bundle.hg"
            bundle = [HG, "-q", "-R", site.config.repositories / name, "bundle", "-a"]
            bundle += ["-t", TYPES[kind], file]
            send = ["curl", "-fsS", "--aws-sigv4", "aws:amz:us-east-1:s3", "-T", file]
            send += ["-H", "x-amz-content-sha256:UNSIGNED-PAYLOAD"]
            send += ["-u", f"{WHO.access_key_id}:{WHO.secret_access_key}"]
            send += [f"{url}/bundles/loop/{name}/{kind}.hg"]
            lines += [f"rm -f {file}", *(shlex.join(map(str, words)) for words in (bundle, send))]
    started = time.perf_counter()
    subprocess.run(
        ["sh"], input="\n".join(lines), text=True, check=True, env=environment(site.config.hgrc)
    )
    return time.perf_counter() - started


def bench_run(site: Site, url: str, root: Path, count: int) -> bool:
    """All bundles of many small repositories."""
    names = [f"small/{number:04}" for number in range(count)]
    for number, name in enumerate(names):
        (site.config.repositories / name).parent.mkdir(parents=True, exist_ok=True)
        generate(site.config.repositories / name, Size(changesets=20, files=10), seed=number)
    before = children()
    loop = shell_loop(site, names, url, root)
    loop_cpu = children() - before
    own = time.process_time()
    before = children()
    ours = site.run(site.repositories(names, KINDS), Action.GENERATE)
    ours_cpu = children() - before + time.process_time() - own
    show("run", f"shell loop over {count} repositories, 3 kinds (no check at all)", loop)
    show("run", "hgfleet bundles run, every bundle tried by a clone", ours)
    show("run", "CPU of the shell loop", loop_cpu)
    show("run", "CPU of hgfleet bundles run", ours_cpu)
    return show("run", "wall of the run / wall of the loop", ours / loop, BARS["run"], "")


def bench_idle(site: Site, count: int) -> bool:
    """A run with nothing to do."""
    names = [f"idle/{number:04}" for number in range(count)]
    first = site.config.repositories / "seed"
    generate(first, Size(changesets=5, files=5), seed=1)
    for name in names:
        shutil.copytree(first, site.config.repositories / name)
    repositories = site.repositories(names, ("zstd",))
    show(
        "idle", f"the first run over {count} repositories", site.run(repositories, Action.GENERATE)
    )
    # This run fills the state cache: the files are now old enough for their stat to be trusted.
    show("idle", "the second one", site.run(repositories, Action.KEEP))
    took = statistics.median(site.run(repositories, Action.KEEP) for _ in range(ROUNDS))
    return show("idle", f"a run with nothing to do, {count} repositories", took, BARS["idle"])


def main() -> int:
    """Run the chosen parts; exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="run, idle, kill, clone (default: all)"
    )
    parser.add_argument("--versitygw", type=Path, required=True, help="the gateway's program")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--small", type=int, default=200, help="repositories of the part `run`")
    parser.add_argument("--many", type=int, default=1000, help="repositories of the part `idle`")
    parser.add_argument("--kills", type=int, default=30, help="runs of the part `kill`")
    parser.add_argument("--changesets", type=int, default=10_000, help="of the part `clone`")
    parser.add_argument("--repository", type=Path, help="a real one for the part `clone`")
    options = parser.parse_args()
    known = ("run", "idle", "kill", "clone")
    parts = options.parts or known
    if unknown := {*parts} - {*known}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    met = True
    with tempfile.TemporaryDirectory(prefix="hgfleet-bench-") as folder:
        root = Path(folder)
        with gateway(options.versitygw.resolve(), root / "store") as url:
            for part in parts:
                folder_of_part = root / part
                folder_of_part.mkdir()
                site = make_site(folder_of_part, url, options.jobs)
                if part == "run":
                    met &= bench_run(site, url, folder_of_part, options.small)
                elif part == "idle":
                    met &= bench_idle(site, options.many)
                elif part == "kill":
                    met &= bench_kill(site, folder_of_part, url, options.kills)
                else:
                    met &= bench_clone(site, folder_of_part, options.changesets, options.repository)
    print(
        f"load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
