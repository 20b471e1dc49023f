"""Set-up that every entry point shares: the controller environment and a Docker Engine.

Uses the standard library only, because it runs before anything is installed. Each function is
idempotent: it looks first, says what it is about to do, and may be interrupted at any point and
started again.

    venv = bootstrap.ensure_controller()  # hash-locked Python environment with ansible, pytest
    bootstrap.ensure_engine()             # a Docker Engine answers and can boot systemd hosts
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STATE = ROOT / ".cluster"
CACHE = ROOT / ".cache"
REQUIREMENTS = ROOT / "requirements.txt"

OLDEST_PYTHON = (3, 11)
# ansible-core 2.19 supports these as the controller's Python.
NEWEST_PYTHON = (3, 13)
DISTRIBUTION_PYTHON = "/usr/bin/python3"
# Exits with 0 in a Python that can make the environment, with the C parts of Mercurial.
FITS = f"""import ensurepip, os, sys, sysconfig, venv
os.stat(sysconfig.get_path("include") + "/Python.h")
sys.exit(not {OLDEST_PYTHON} <= sys.version_info[:2] <= {NEWEST_PYTHON})"""

# A cluster with its images takes about 4 GiB, the controller environment 0.8 GiB (measured).
NEEDED_FREE_BYTES = 6 * 1024**3

CGROUP_MOUNT = Path("/sys/fs/cgroup")
SECONDS_FOR_ENGINE_START = 60


class SetupError(Exception):
    """Set-up cannot go on; the text names the cause and the way out. Exit code 1."""


def fail(cause: str, way_out: str) -> NoReturn:
    """Raise SetupError with a cause and a way out, each a sentence."""
    raise SetupError(f"{cause}\n  {way_out}")


class Step:
    """Announce a step, show that it is alive every few seconds, and say how long it took.

    Used as a context manager: ``with Step("controller", "installing packages"):``.
    """

    _started_at = time.monotonic()
    _print_lock = threading.Lock()
    _heartbeat_seconds = 15.0

    def __init__(self, subject: str, what: str) -> None:
        self.subject = subject
        self.what = what
        self._begin = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._heartbeat, daemon=True)

    @classmethod
    def say(cls, subject: str, text: str) -> None:
        """Print a progress line, with the seconds since the command began."""
        elapsed = time.monotonic() - cls._started_at
        with cls._print_lock:
            print(f"[{elapsed:5.0f} s] {subject:<12} {text}", file=sys.stderr, flush=True)

    def _heartbeat(self) -> None:
        while not self._done.wait(self._heartbeat_seconds):
            spent = time.monotonic() - self._begin
            self.say(self.subject, f"... {self.what}, {spent:.0f} s so far")

    def __enter__(self) -> Step:
        self._begin = time.monotonic()
        self.say(self.subject, self.what)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        spent = time.monotonic() - self._begin
        outcome = (
            "done" if error is None else "interrupted" if kind is KeyboardInterrupt else "failed"
        )
        self.say(self.subject, f"{outcome} in {spent:.1f} s")


def run(
    command: Sequence[str],
    *,
    what: str,
    way_out: str = "The output above is from that command.",
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes | None = None,
) -> str:
    """Run a command and return its standard output; SetupError shows its last lines if it fails."""
    done = subprocess.run(list(command), input=stdin, capture_output=True, env=env, cwd=cwd)
    if done.returncode in (-signal.SIGINT, 128 + signal.SIGINT):
        # Ctrl-C reaches this process and the command, in any order. It is not a failure.
        raise KeyboardInterrupt
    if done.returncode != 0:
        output = (done.stdout + done.stderr).decode("utf-8", "replace").strip()
        tail = "\n".join("  | " + line for line in output.splitlines()[-25:])
        fail(f"{what} failed ({command[0]} exited with {done.returncode}):\n{tail}", way_out)
    return done.stdout.decode("utf-8", "replace")


def check_platform() -> None:
    """Refuse anything but Linux."""
    if not sys.platform.startswith("linux"):
        fail(
            f"The local cluster needs Linux; this is {sys.platform}.",
            "Run it in a Linux virtual machine.",
        )


def check_free_space(path: Path, needed: int = NEEDED_FREE_BYTES) -> None:
    """Refuse to start a build that would fill the disk that holds `path`; `needed` is in bytes."""
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free
    if free < needed:
        fail(
            f"{path} has {free / 1024**3:.1f} GiB free; {needed / 1024**3:.1f} GiB are needed.",
            "Free some space on that disk. ./cluster down removes the containers of the cluster and"
            " what was pushed into them; docker system df shows what Docker has: remove only images"
            " and volumes that no program needs, by their names.",
        )


def _may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def ensure_debian_packages(packages: Sequence[str], reason: str) -> None:
    """Install Debian packages where we may; else say which command does it."""
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    if not _may_install():
        fail(
            f"{reason} needs what Debian calls {', '.join(packages)}.",
            f"On Debian or Ubuntu: sudo {' '.join(command)}. Elsewhere: packages of that purpose.",
        )
    STATE.mkdir(exist_ok=True)
    step = Step("packages", f"installing {', '.join(packages)} ({reason})")
    with step, (STATE / "packages.lock").open("w") as lock:
        # ./run-tests installs the controller environment and the engine at the same time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        way_out = "Repair the package manager (network? full disk?), then try the same again."
        run(["apt-get", "update"], what="Reading the package lists", way_out=way_out, env=env)
        run(command, what="Installing packages", way_out=way_out, env=env)


# --- the controller environment ---


def find_python() -> str:
    """Return an interpreter for the environment: the distribution's, this process's, or from PATH.

    A distribution builds with profiles; pyenv does not, and unit tests took a third longer with it.
    """
    probe = [DISTRIBUTION_PYTHON, "-c", FITS]
    if os.access(probe[0], os.X_OK) and not subprocess.run(probe, capture_output=True).returncode:
        return DISTRIBUTION_PYTHON
    if OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON:
        # Not the environment itself, should it be active: it cannot create itself again.
        return getattr(sys, "_base_executable", sys.executable)
    for minor in range(NEWEST_PYTHON[1], OLDEST_PYTHON[1] - 1, -1):
        program = shutil.which(f"python3.{minor}")
        if program:
            return program
    fail(
        f"Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} to"
        f" {NEWEST_PYTHON[0]}.{NEWEST_PYTHON[1]} is needed; this is {sys.version.split()[0]}.",
        "Install such a version, for example: apt-get install python3.13, or use pyenv.",
    )


def controller_key(python: str) -> str:
    """Return the key of the environment: the lock and the interpreter's version."""
    version = run(
        [python, "-c", "import sys; print(sys.version)"], what="Asking Python for its version"
    )
    return hashlib.sha256(REQUIREMENTS.read_bytes() + version.encode()).hexdigest()


def ensure_controller() -> Path:
    """Create or renew the controller environment from the lock; return its folder."""
    python = find_python()
    key = controller_key(python)
    marker = VENV / "complete"
    if marker.exists() and marker.read_text() == key:
        return VENV
    check_free_space(ROOT, 2 * 1024**3)
    probe = subprocess.run([python, "-c", "import ensurepip, venv"], stderr=subprocess.DEVNULL)
    if probe.returncode != 0:
        ensure_debian_packages(["python3-venv"], "creating a Python environment")
    with Step(
        "controller", f"installing {REQUIREMENTS.name} into {VENV.name} (once, about a minute)"
    ):
        marker.unlink(missing_ok=True)
        way_out = "Check that the Python package index answers, then run the same command again."
        made = [python, "-m", "venv", "--clear", str(VENV)]
        run(made, what="Creating the environment", way_out=way_out)
        pip = [str(VENV / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install"]
        # Most of its 20,000 modules are never imported; Python compiles the others.
        pip += ["--quiet", "--no-compile", "--require-hashes", "-r", str(REQUIREMENTS)]
        run(pip, what="Installing the locked requirements", way_out=way_out)
        # The last step, so that an interrupted installation is never taken for a complete
        # environment.
        marker.write_text(key)
    return VENV


def controller_environment() -> dict[str, str]:
    """Return the environment of the controller's tools: first in PATH, with our ansible.cfg."""
    env = dict(os.environ)
    env["PATH"] = f"{VENV / 'bin'}{os.pathsep}{env.get('PATH', os.defpath)}"
    env["VIRTUAL_ENV"] = str(VENV)
    env["ANSIBLE_CONFIG"] = str(ROOT / "ansible.cfg")
    env["PYTHONPATH"] = str(ROOT)
    env.update(mitogen_environment(env))
    return env


def mitogen_environment(env: dict[str, str]) -> dict[str, str]:
    """Return the variables that turn Mitogen on (five times as fast); none if HGFLEET_MITOGEN=0."""
    if env.get("HGFLEET_MITOGEN", "1") == "0":
        return {}
    if not any(VENV.glob("lib/python3*/site-packages/ansible_mitogen")):
        return {}
    return {
        "ANSIBLE_STRATEGY_PLUGINS": str(ROOT / "ansible/plugins/strategy"),
        "ANSIBLE_STRATEGY": "mitogen_lean",
        # Every run would warn that strategy plugins are deprecated. HGFLEET_MITOGEN=0 shows all.
        "ANSIBLE_DEPRECATION_WARNINGS": "0",
    }


# --- the Docker Engine ---


def _engine_info() -> dict[str, object] | None:
    """Return the engine's description of itself, or None if none answers."""
    if shutil.which("docker") is None:
        return None
    done = subprocess.run(
        ["docker", "info", "--format", "{{json .}}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        info = json.loads(done.stdout)
    except ValueError:
        return None
    if not isinstance(info, dict) or done.returncode != 0 or not info.get("ServerVersion"):
        return None
    return info


def uses_cgroup_v2(mount: Path = CGROUP_MOUNT) -> bool:
    """Tell whether cgroup v2 is mounted where systemd looks for it."""
    return (mount / "cgroup.controllers").exists()


def engine_command(cgroup_v2: bool) -> list[str]:
    """Return the command that runs dockerd; it outlives the folder in TMPDIR of a run of tests.

    Where the machine mounts cgroup v1, the engine gets a mount namespace of its own with cgroup v2
    in it: Debian 13's systemd needs v2, and the machine's own mounts stay as they are.
    """
    if cgroup_v2:
        return ["env", "--unset=TMPDIR", "dockerd"]
    recipe = (
        f"mount --make-rprivate / && umount -R {CGROUP_MOUNT} && "
        f"mount -t cgroup2 cgroup2 {CGROUP_MOUNT} && exec dockerd"
    )
    return ["env", "--unset=TMPDIR", "unshare", "--mount", "sh", "-c", recipe]


def ensure_engine() -> None:
    """Make sure that a Docker Engine with cgroup v2 answers; install and start it if allowed."""
    check_platform()
    info = _engine_info()
    if info is None:
        _install_engine()
        _start_engine()
        info = _engine_info()
    if info is None:
        fail("The Docker Engine stopped answering.", f"See {STATE / 'engine.log'}.")
    version = str(info.get("CgroupVersion", "2"))
    if version != "2":
        fail(
            "The running Docker Engine uses cgroup v1; Debian 13's systemd needs v2.",
            "Boot with systemd.unified_cgroup_hierarchy=1, or stop it: an engine with v2 is"
            " started instead.",
        )
    root = Path(str(info.get("DockerRootDir", "/var/lib/docker")))
    check_free_space(root)


def _install_engine() -> None:
    socket = Path("/var/run/docker.sock")
    if shutil.which("docker") and socket.exists() and not os.access(socket, os.R_OK | os.W_OK):
        fail(
            f"A Docker Engine is there, but {socket} is not open to this user.",
            "Join its group (sudo usermod -aG docker $USER, then log in again), or run as root.",
        )
    if os.geteuid() != 0:
        fail(
            "No Docker Engine answers, and only root may start it.",
            "Install it (sudo apt-get install docker.io), start it (sudo systemctl start docker),"
            " or run as root.",
        )
    if shutil.which("dockerd") is None:
        ensure_debian_packages(["docker.io"], "running the hosts as containers")
    if shutil.which("docker") is None:
        # Debian 13 packages the client by itself.
        ensure_debian_packages(["docker-cli"], "talking to the Docker Engine")


def forget_dead(pid_file: Path, program: str, processes: Path = Path("/proc")) -> None:
    """Remove a pid file that names no process of `program`.

    An engine that was killed leaves its pid files behind, and trusts them at the next start, even
    if the number then belongs to another process.
    """
    try:
        running = (processes / pid_file.read_text().strip() / "comm").read_text().strip()
    except OSError:
        running = ""
    if running != program:
        pid_file.unlink(missing_ok=True)


def _start_engine() -> None:
    if Path("/run/systemd/system").exists():
        with Step("engine", "starting the Docker Engine (systemctl start docker)"):
            run(["systemctl", "start", "docker"], what="Starting the Docker Engine")
        return
    forget_dead(Path("/var/run/docker.pid"), "dockerd")
    forget_dead(Path("/var/run/docker/containerd/containerd.pid"), "containerd")
    STATE.mkdir(exist_ok=True)
    log = STATE / "engine.log"
    cgroup_v2 = uses_cgroup_v2()
    how = "" if cgroup_v2 else ", in a mount namespace of its own with cgroup v2"
    with Step("engine", f"starting the Docker Engine{how} (log: {log.relative_to(ROOT)})"):
        with log.open("ab") as output:
            engine = subprocess.Popen(
                engine_command(cgroup_v2),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
            )
        deadline = time.monotonic() + SECONDS_FOR_ENGINE_START
        while _engine_info() is None:
            if engine.poll() is not None or time.monotonic() > deadline:
                end = log.read_text("utf-8", "replace").strip().splitlines()[-8:]
                tail = "\n".join(f"  | {line}" for line in end)
                fail(f"The Docker Engine did not start:\n{tail}", f"See {log}.")
            time.sleep(0.25)


def ca_bundle() -> Path | None:
    """Return the CA bundle that this machine trusts, for build steps that fetch packages."""
    places = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/cert.pem")
    named = os.environ.get("SSL_CERT_FILE")
    return next((Path(path) for path in (named, *places) if path and Path(path).is_file()), None)


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder in the checkout's cache, where results can be moved, not copied."""
    CACHE.mkdir(exist_ok=True)
    return tempfile.TemporaryDirectory(dir=str(CACHE), prefix="scratch-")
