"""The promises of the role web, on any web host: read with Python on the host itself."""

from __future__ import annotations

import base64
import json
import re
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from testinfra.host import Host

    from testing.conftest import WaitFor

UNIT = "hgfleet-web.service"
LOG = "/var/log/hgfleet/web/access.log"

ASK = """
import http.client, json, socket, ssl, sys
method, path, headers, length, port = sys.argv[1:]
context = ssl.create_default_context(cafile="/etc/hgfleet/tls/ca.pem")
connection = http.client.HTTPConnection("localhost")
plain = socket.create_connection(("127.0.0.1", int(port)), timeout=30)
connection.sock = context.wrap_socket(plain, server_hostname=socket.gethostname())
connection.putrequest(method, path)
for name, value in json.loads(headers).items():
    connection.putheader(name, value)
if int(length):
    connection.putheader("Content-Length", length)
connection.endheaders()
for _ in range(int(length) // 100_000):
    connection.send(b"x" * 100_000)
answer = connection.getresponse()
body = answer.read().decode("latin-1")
print(json.dumps([answer.status, dict(answer.getheaders()), body]))
"""


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


@pytest.fixture
def port(host: Host) -> int:
    settings = host.file("/etc/nginx/nginx.conf").content_string
    match = re.search(r"^\s*listen \S*:(\d+) ssl", settings, re.MULTILINE)
    assert match
    return int(match[1])


@pytest.fixture
def ask(host: Host, port: int) -> Any:
    """Send a request over TLS from the host itself."""

    def send(
        path: str, method: str = "GET", headers: dict[str, str] | None = None, length: int = 0
    ) -> Reply:
        words = [method, path, json.dumps(headers or {}), str(length), str(port)]
        output = host.check_output("python3 -c %s %s %s %s %s %s", ASK, *words)
        return Reply(*json.loads(output))

    return send


@pytest.fixture
def repository(host: Host) -> str:
    """A public repository."""
    registry = json.loads(host.file("/var/lib/hgfleet/registry.json").content_string)
    return next(
        str(path) for path, entry in registry["repositories"].items() if entry["read"] == "public"
    )


def journal(host: Host) -> str:
    return str(host.run(f"journalctl -u {UNIT} -n 50 --no-pager").stdout)


def test_services_run_and_start_with_the_host(host: Host) -> None:
    for name in ("hgfleet-web.socket", UNIT, "nginx.service"):
        service = host.service(name)
        assert service.is_running, journal(host)
        assert service.is_enabled


def test_certificate_names_the_host_and_only_current_tls_is_spoken(host: Host, port: int) -> None:
    name = host.check_output("hostname")
    base = f"openssl s_client -connect localhost:{port} -CAfile /etc/hgfleet/tls/ca.pem"
    assert host.run(f"{base} -verify_return_error -verify_hostname {name} </dev/null").rc == 0
    assert host.run(f"{base} -tls1_1 </dev/null").rc != 0


def test_host_is_healthy(ask: Any) -> None:
    reply = ask("/healthz")
    assert reply.status == 200
    health = json.loads(reply.body)
    assert health["status"] == "ok"
    assert health["unreadable"] == 0


def test_health_checks_have_a_socket_that_nginx_reaches(host: Host) -> None:
    health = host.file("/run/hgfleet-web/health.sock")
    assert health.is_socket
    assert health.mode == 0o666
    assert host.run("runuser -u www-data -- test -w /run/hgfleet-web/health.sock").rc == 0


def test_the_sandbox_lets_renderers_limit_themselves(host: Host, ask: Any, repository: str) -> None:
    assert ask(f"/{repository}/shortlog?unstored=yes").status == 200
    unlimited = "journalctl -u hgfleet-web -b --grep 'no limit of memory' --quiet"
    assert host.run(unlimited).stdout == ""


@pytest.mark.changes
def test_draining_says_404_and_goes_on_serving(host: Host, ask: Any, repository: str) -> None:
    drain = "/etc/hgfleet/web.drain"
    assert host.run(f"touch {drain}").rc == 0
    try:
        assert ask("/healthz").status == 404
        assert ask(f"/{repository}?cmd=heads").status == 200
    finally:
        assert host.run(f"rm -f {drain}").rc == 0
    assert ask("/healthz").status == 200


def test_repository_is_served_as_protocol_page_and_json(
    host: Host, ask: Any, repository: str
) -> None:
    heads = ask(f"/{repository}?cmd=heads")
    assert heads.status == 200, journal(host)
    assert re.fullmatch(r"([0-9a-f]{40} ?)+\n", heads.body)
    assert "clonebundles" in host.file("/etc/hgfleet/hgrc").content_string
    page = ask(f"/{repository}/shortlog")
    assert page.status == 200
    assert "'nonce-" in page.headers["Content-Security-Policy"]
    assert json.loads(ask(f"/{repository}/json-log").body)["changeset_count"] >= 0
    assert f'href="/{repository}"' in ask("/").body


def test_style_sheets_and_scripts_come_out_of_the_release(ask: Any, repository: str) -> None:
    page = ask(f"/{repository}/shortlog").body
    linked = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', page))
    assert any(path.endswith(".css") for path in linked)
    assert any(path.endswith(".js") for path in linked)
    for path in linked:
        assert ask(path).status == 200, path


def test_a_push_is_refused_without_a_worker_seeing_its_body(ask: Any, repository: str) -> None:
    for length in (0, 100_000, 20_000_000):
        reply = ask(f"/{repository}?cmd=unbundle", method="POST", length=length)
        assert reply.status == 200
        assert reply.headers["Content-Type"] == "application/hg-error"
        assert "a push goes over SSH" in reply.body


def test_a_body_that_is_too_large_is_refused(ask: Any, repository: str) -> None:
    assert ask(f"/{repository}?cmd=known", method="POST", length=20_000_000).status == 413


def test_nothing_but_registered_repositories_is_reached(ask: Any, repository: str) -> None:
    encoded = f"%{ord(repository[0]):x}{repository[1:]}"
    for path in ("/missing", "/" + encoded, "/static/", "/static/nothing.css"):
        assert ask(path).status in (403, 404), path
    for path in ("/../etc/passwd", "/static/../../../../etc/passwd", "/..%2f..%2fetc/passwd"):
        assert ask(path).status == 400, path


def test_a_stranger_cannot_say_who_they_are(host: Host, ask: Any, wait_for: WaitFor) -> None:
    trusted = re.findall(
        r"set_real_ip_from (\S+);", host.file("/etc/nginx/nginx.conf").content_string
    )
    assert not {"127.0.0.1", "::1", "localhost"} & set(trusted), "this test asks from there"
    mark = uuid.uuid4().hex
    ask(f"/{mark}", headers={"X-Forwarded-For": "203.0.113.9", "X-Real-IP": "203.0.113.9"})
    line = wait_for("the request is logged", lambda: host.run(f"grep {mark} {LOG}").stdout)
    assert json.loads(line)["client"] in ("127.0.0.1", "::1")


def test_each_request_is_a_json_line(host: Host, ask: Any, repository: str) -> None:
    mark = uuid.uuid4().hex
    reply = ask(f"/{repository}?cmd=heads", headers={"User-Agent": mark})
    line = json.loads(host.check_output(f"grep {mark} {LOG}"))
    assert line["repository"] == repository
    assert (line["command"], line["status"], line["bytes"]) == ("heads", 200, len(reply.body))
    assert line["cache"] in ("hit", "miss")
    assert 0 < line["duration"] < 30


def test_workers_count_requests_for_every_user_of_the_host(
    host: Host, ask: Any, repository: str, wait_for: WaitFor
) -> None:
    ask(f"/{repository}?cmd=heads")
    # The folder cannot be listed, as metrics need not.
    read = "runuser -u nobody -- cat /run/hgfleet-web/requests"
    counts = wait_for("the request is counted", lambda: host.run(read).stdout)
    assert re.search("^wire 2xx [1-9]", counts, re.MULTILINE)


@pytest.mark.changes
@pytest.mark.parametrize(
    ("program", "log"), [("hgfleet-web", LOG), ("nginx", "/var/log/nginx/access.log")]
)
def test_log_goes_on_after_a_rotation(
    host: Host, ask: Any, wait_for: WaitFor, program: str, log: str
) -> None:
    done = host.run(f"logrotate --force /etc/logrotate.d/{program}")
    assert done.rc == 0, done.stderr
    mark = uuid.uuid4().hex

    def arrives() -> bool:
        # Requested again, as the first request may be in the old log; logged up to a second later.
        ask(f"/{mark}")
        return bool(host.run(f"grep -q {mark} {log}").rc == 0)

    wait_for("a request in the new log", arrives)
    assert host.file(log).mode == 0o640


def test_no_process_of_nginx_is_root(host: Host) -> None:
    main = host.check_output("systemctl show -P MainPID nginx.service")
    owners = host.check_output(f"ps -o user= -p {main} --ppid {main}").split()
    assert set(owners) == {"www-data"}


def test_workers_cannot_write_a_repository_and_others_cannot_read_one(
    host: Host, repository: str
) -> None:
    folder = f"/srv/hg/repos/{repository}/.hg"
    assert host.run(f"runuser -u hgweb -- ls {folder}").rc == 0
    assert host.run(f"runuser -u hgweb -- test -w {folder}").rc != 0
    assert host.run(f"runuser -u www-data -- ls {folder}").rc != 0
    assert host.run(f"runuser -u nobody -- ls {folder}").rc != 0


def test_only_nginx_reaches_the_workers(host: Host) -> None:
    socket = host.file("/run/hgfleet-web.sock")
    assert (socket.user, socket.group, socket.mode) == ("root", "www-data", 0o660)


def test_units_are_sandboxed(host: Host) -> None:
    for name, most in ((UNIT, 1.5), ("nginx.service", 2.0)):
        report = host.check_output(f"systemd-analyze security --no-pager {name}")
        exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", report)
        assert exposure
        assert float(exposure[1]) <= most, report
    shown = host.check_output(f"systemctl show {UNIT} -p User -p ProtectSystem -p MemoryMax")
    assert "User=hgweb" in shown
    assert "ProtectSystem=strict" in shown
    assert "MemoryMax=infinity" not in shown


@pytest.mark.disruptive
def test_a_reload_loses_no_request(host: Host, repository: str, port: int) -> None:
    """Requests continue while workers are replaced twice, and all of them are answered."""
    script = f"""
import ssl, sys, threading, time, http.client, subprocess
context = ssl._create_unverified_context()
stop = threading.Event(); seen = []
def work():
    while not stop.is_set():
        connection = http.client.HTTPSConnection("localhost", {port}, context=context, timeout=60)
        connection.request("GET", "/{repository}?cmd=heads")
        seen.append(connection.getresponse().status)
        connection.close()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for action in ("reload", "restart"):
    subprocess.run(["systemctl", action, "{UNIT}"], check=True)
    done = len(seen)
    while len(seen) < done + 20: time.sleep(0.05)
stop.set()
for thread in threads: thread.join()
print(sorted(set(seen)), len(seen))
"""
    output = host.check_output("python3 -c %s", script)
    assert output.startswith("[200] "), output


@pytest.mark.disruptive
def test_a_killed_worker_comes_back(host: Host, ask: Any, wait_for: WaitFor) -> None:
    pid = host.check_output(f"systemctl show -P MainPID {UNIT}")
    assert host.run(f"kill -KILL {pid}").rc == 0
    wait_for("the host is healthy again", lambda: ask("/healthz").status == 200)
    wait_for("the unit runs", lambda: host.service(UNIT).is_running)


# --- sign-in ----------------------------------------------------------------------------------

AUTH = "hgfleet-auth.service"
SECRET = "/etc/hgfleet/secrets/auth-bind"

QUESTION = """
import json, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(15)
connection.connect("/run/hgfleet-auth/socket")
connection.sendall(sys.argv[1].encode() + b"\\n")
print(connection.makefile().readline())
"""


def test_sign_in_runs_and_starts_with_the_host(host: Host) -> None:
    for name in ("hgfleet-auth.socket", AUTH):
        service = host.service(name)
        assert service.is_running, host.run(f"journalctl -u {name} -n 50 --no-pager").stdout
        assert service.is_enabled
    assert "User=hgauth" in host.check_output(f"systemctl show {AUTH} -p User")


def test_its_secret_is_for_root_alone(host: Host) -> None:
    secret = host.file(SECRET)
    assert (secret.user, secret.group, secret.mode) == ("root", "root", 0o600)
    for user in ("hgauth", "hgweb", "hg", "www-data", "nobody"):
        assert host.run(f"runuser -u {user} -- cat {SECRET}").rc != 0, user
    elsewhere = host.run(
        f"grep -r -l -F -f {SECRET} --exclude-dir secrets /etc/hgfleet /etc/systemd;"
        f" journalctl --quiet --no-pager | grep -F -f {SECRET};"
        f" ps -eo args -ww | grep -F -f {SECRET}"
    )
    assert elsewhere.stdout == ""


def test_only_web_workers_may_ask_it(host: Host) -> None:
    socket = host.file("/run/hgfleet-auth/socket")
    assert (socket.user, socket.group, socket.mode) == ("root", "hgweb", 0o660)
    question = json.dumps({"user": "nobody", "secret": "wrong", "client": "192.0.2.1"})
    ask_as = "runuser -u %s -- python3 -c %s %s"
    answer = host.check_output(ask_as, "hgweb", QUESTION, question)
    told = json.loads(answer)
    # The worker delays its answer to a refused client by so many seconds.
    assert told.pop("after") >= 0
    assert told == {"answer": "refused"}
    for user in ("www-data", "hg", "nobody"):
        assert "PermissionError" in host.run(ask_as, user, QUESTION, question).stderr, user


@pytest.mark.changes
def test_tokens_are_read_by_the_sign_in_and_written_by_hg(host: Host) -> None:
    folder = host.file("/var/lib/hgfleet/dynamic/tokens")
    assert (folder.user, folder.group, folder.mode) == ("hg", "hgauth", 0o2750)
    assert host.check_output(f"find {folder.path} ! -group hgauth") == ""
    new = f"{folder.path}/{uuid.uuid4().hex}"
    try:
        assert host.run(f"runuser -u hg -- touch {new}").rc == 0
        assert host.file(new).group == "hgauth"
        assert host.run(f"runuser -u hgauth -- ls {new}").rc == 0
    finally:
        host.run(f"rm -f {new}")
    assert host.run(f"runuser -u hgauth -- touch {new}").rc != 0
    assert host.run(f"runuser -u hgweb -- ls {folder.path}").rc != 0


def test_it_asks_the_directory_over_tls(host: Host) -> None:
    settings = host.file("/etc/hgfleet/auth.toml").content_string
    match = re.search(r"^uris = (\[.*\])$", settings, re.MULTILINE)
    assert match
    assert all(uri.startswith(("ldaps://", "ldapi://")) for uri in json.loads(match[1]))
    probe = host.run("/opt/hgfleet/current/bin/hgfleet-auth --probe")
    assert probe.rc == 0, probe.stdout + probe.stderr
    assert "answers after" in probe.stdout


def test_the_sign_in_is_sandboxed(host: Host) -> None:
    report = host.check_output(f"systemd-analyze security --no-pager {AUTH}")
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", report)
    assert exposure
    assert float(exposure[1]) <= 2.0, report


def test_who_sends_a_password_is_never_written_down_with_it(ask: Any, host: Host) -> None:
    mark = uuid.uuid4().hex
    encoded = base64.b64encode(f"nobody:{mark}".encode()).decode()
    reply = ask(f"/{mark[:8]}?cmd=heads", headers={"Authorization": f"Basic {encoded}"})
    assert reply.status == 401
    assert host.run(f"grep {mark[:8]} {LOG}").rc == 0
    for secret in (mark, encoded):
        done = host.run(
            f"grep -r -l -F {secret} /var/log/nginx /var/log/hgfleet;"
            f" journalctl --quiet --no-pager --since=-5m | grep -v grep | grep -F {secret}"
        )
        assert done.stdout == ""


def test_answers_are_written_where_the_check_looks_for_room(host: Host) -> None:
    shown = host.check_output("systemctl show -P Environment hgfleet-web.service")
    spool = re.findall(r"HGFLEET_WEB_SPOOL=(\S+)", shown)[0]
    assert int(re.findall(r"HGFLEET_WEB_SPOOL_FREE_BYTES=(\d+)", shown)[0]) > 0
    settings = host.file("/etc/nginx/nginx.conf").content_string
    for name, directive in (("answers", "proxy_temp_path"), ("bodies", "client_body_temp_path")):
        assert f"{directive} {spool}/{name};" in settings
        folder = host.file(f"{spool}/{name}")
        assert (folder.user, folder.mode) == ("www-data", 0o700)
