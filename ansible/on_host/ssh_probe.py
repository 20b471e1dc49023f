"""Meet the SSH service of this host as a client does: `ssh_probe.py QUESTION` prints JSON.

Runs on an ssh host as root (`playbooks/roll/check.yml`), and uses nothing but Python's own modules.
QUESTION is JSON: `address` and `port` of the listener, and `truth`, repositories of this host as
`truth.py` gives them. The answer has `problems`, a sentence each. A login needs all of these:

- the listener, which tells its protocol,
- the key lookup, which asks the servers of the directory as the user that sshd runs it as,
- a session of hg, as the forced command of a key begins it: it tells the heads of a repository.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from typing import Any

RUNUSER = "/usr/sbin/runuser"
KEYS = (RUNUSER, "-u", "hgkeys", "--", "/opt/hgfleet/current/bin/hgfleet-keys", "--probe")
SHELL = (RUNUSER, "-u", "hg", "--", "/opt/hgfleet/current/bin/hgfleet-shell")

PERSON = "deploy-check"
"""The name of no person: the session reads a public repository, as everyone may."""

SECONDS = 30.0
BANNER = b"SSH-2.0-"


def listener(address: str, port: int) -> str:
    """Return why the listener does not speak SSH, empty if it does."""
    try:
        with socket.create_connection((address, port), timeout=SECONDS) as connection:
            connection.settimeout(SECONDS)
            said = connection.recv(len(BANNER), socket.MSG_WAITALL)
    except OSError as error:
        return f"no SSH at {address} port {port}: {error}"
    return "" if said == BANNER else f"no SSH at {address} port {port}: it said {said!r}"


def key_lookup(command: list[str]) -> str:
    """Return why no key would be found in the directory, empty if one would."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the key lookup fails: {error}"
    if done.returncode:
        return f"the key lookup fails ({done.returncode}): {_last(done.stdout + done.stderr)}"
    return "" if " answers after " in done.stdout else "the key lookup asked no directory server"


def session(command: list[str], known: dict[str, Any], now: float) -> str:
    """Return what is wrong with a session that asks for the heads of a repository."""
    path = known["path"]
    # As sshd begins it. A login of now: an older one is asked of the directory again.
    environment = {
        "PATH": "/usr/bin:/bin",
        "SSH_ORIGINAL_COMMAND": f"hg -R {path} serve --stdio",
        "SSH_CONNECTION": "127.0.0.1 1 127.0.0.1 22",
    }
    options = ["--user", PERSON, "--login", str(int(now))]
    try:
        done = subprocess.run(
            [*command, *options],
            input=b"heads\n",
            capture_output=True,
            timeout=SECONDS,
            env=environment,
            check=False,
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"a session of {path} fails: {error}"
    length, _, answer = done.stdout.partition(b"\n")
    if not length.isdigit() or len(answer) != int(length):
        said = _last(done.stderr.decode("utf-8", "replace"))
        return f"a session of {path} fails ({done.returncode}): {said}"
    heads = sorted(answer.decode("ascii", "replace").split())
    if heads != known["heads"]:
        # A push between the two looks is as likely; the check is repeated.
        own, disk = _short(heads), _short(known["heads"])
        return f"wrong data: a session of {path} has heads {own}, on the disk are {disk}"
    return ""


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]


def _short(heads: list[str]) -> str:
    return " ".join(node[:12] for node in heads[:3]) + (" ..." if len(heads) > 3 else "") or "none"


def problems(question: dict[str, Any], now: float) -> list[str]:
    """Return a sentence for each part of a login that does not work."""
    texts = [
        listener(question["address"], int(question["port"])),
        key_lookup(question.get("keys", list(KEYS))),
    ]
    texts += [
        session(question.get("shell", list(SHELL)), known, now) for known in question["truth"]
    ]
    return [text for text in texts if text]


if __name__ == "__main__":
    print(json.dumps({"problems": problems(json.loads(sys.argv[1]), time.time())}))
