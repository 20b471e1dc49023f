"""The beginning of ./cluster, ./deploy and ./run-tests: the Python that they need, then their code.

An older Python reads this file too, so it uses only features of an older Python.
"""

import importlib
import sys

OLDEST = (3, 11)


def run(program: str, module: str) -> int:
    """Run the `main` of a module with the arguments of the command line; return its exit code."""
    if sys.version_info < OLDEST:
        needed, got = ".".join(map(str, OLDEST)), sys.version.split()[0]
        sys.exit(
            f"{program}: Python {needed} or newer is needed, this is {got}."
            f" Run: python{needed} ./{program}"
        )
    # A checkout may belong to another account, and its files are hashed.
    sys.dont_write_bytecode = True
    main = importlib.import_module(module).main
    return int(main(sys.argv[1:]))
