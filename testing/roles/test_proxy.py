"""The promises of the role proxy, on any host of the group proxy."""

from __future__ import annotations

import json
import re
import uuid
from typing import TYPE_CHECKING

import pytest

from controller.bootstrap import ROOT
from testing.site import machine

if TYPE_CHECKING:
    from testinfra.host import Host

    from testing.conftest import WaitFor
    from testing.site.machine import Machine

HERE = "https://localhost"
TEMPLATE = ROOT / "ansible/roles/proxy/templates/haproxy.cfg.j2"

# Starts a HAProxy while no DNS answers, and then a DNS that has one name; prints the states of the
# server before and after. Argument: the section `resolvers` of the role.
WITHOUT_DNS = r"""
import pathlib, socket, subprocess, sys, tempfile, threading, time

folder = pathlib.Path(tempfile.mkdtemp())
server = "late.example:9 init-addr last,libc,none resolvers system resolve-prefer ipv4"
config = f"global\n    stats socket {folder}/admin level admin\n"
config += sys.argv[1].replace("parse-resolv-conf", "nameserver own 127.0.0.1:5399")
config += "\ndefaults\n    mode http\n    timeout connect 1s\n"
config += "    timeout client 1s\n    timeout server 1s\n"
config += f"frontend f\n    bind unix@{folder}/f\n    default_backend web\n"
config += f"backend web\n    server late {server}\n"
(folder / "cfg").write_text(config)
haproxy = subprocess.Popen(["haproxy", "-db", "-f", f"{folder}/cfg"])

def status():
    with socket.socket(socket.AF_UNIX) as admin:
        admin.connect(f"{folder}/admin")
        admin.sendall(b"show stat\n")
        told = b""
        while piece := admin.recv(65536):
            told += piece
    rows = [line.split(",") for line in told.decode().splitlines()]
    return next(row[17] for row in rows if row[:2] == ["web", "late"])

def wait(is_wanted):
    found = ""
    for _ in range(300):
        try:
            found = status()
        except OSError:
            pass
        if is_wanted(found):
            break
        time.sleep(0.1)
    return found

def answer(own):
    while True:
        asked, client = own.recvfrom(4096)
        end = asked.index(b"\0", 12) + 5
        is_address = asked[end - 4 : end - 2] == b"\0\x01"
        head = asked[:2] + b"\x81\x80\0\x01" + (b"\0\x01" if is_address else b"\0\0") + bytes(4)
        record = b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\x7f\0\0\x01"
        own.sendto(head + asked[12:end] + (record if is_address else b""), client)

try:
    before = wait(lambda found: "MAINT" in found)
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(("127.0.0.1", 5399))
    threading.Thread(target=answer, args=(own,), daemon=True).start()
    print(before, "then", wait(lambda found: found and "MAINT" not in found))
finally:
    haproxy.terminate()
"""


def ask(host: Host, method: str, url: str, headers: dict[str, str] | None = None) -> dict[str, str]:
    """Send a request from the host itself; return the status, the headers and the body."""
    script = (
        "import json, ssl, sys, urllib.request, urllib.error\n"
        "method, url, headers = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])\n"
        "class Stay(urllib.request.HTTPRedirectHandler):\n"
        "    def redirect_request(self, *a): return None\n"
        # A certificate of a public CA has only the public name, which clients' tests check.
        "context = ssl.create_default_context()\n"
        "context.check_hostname = False\n"
        "handlers = Stay, urllib.request.HTTPSHandler(context=context)\n"
        "opener = urllib.request.build_opener(*handlers)\n"
        "request = urllib.request.Request(url, method=method, headers=headers)\n"
        "try: answer = opener.open(request, timeout=20)\n"
        "except urllib.error.HTTPError as error: answer = error\n"
        "found = {name.lower(): value for name, value in answer.headers.items()}\n"
        "found['status'] = str(answer.status)\n"
        "found['body'] = answer.read().decode('utf-8', 'replace')\n"
        "print(json.dumps(found))\n"
    )
    told = host.check_output(
        "python3 -c %s %s %s %s", script, method, url, json.dumps(headers or {})
    )
    answer: dict[str, str] = json.loads(told)
    return answer


def repository(host: Host) -> str:
    """A public repository from the service's own list."""
    listed = json.loads(ask(host, "GET", f"{HERE}/api/repositories")["body"])
    return str(listed["repositories"][0]["path"])


def test_configuration_is_valid_and_the_unit_runs(host: Host) -> None:
    assert host.run("haproxy -c -f /etc/haproxy/haproxy.cfg").rc == 0
    assert host.service("haproxy").is_running
    assert host.service("haproxy").is_enabled


def test_a_web_host_answers_through_it_with_hsts(host: Host) -> None:
    answer = ask(host, "GET", f"{HERE}/healthz")
    assert answer["status"] == "200", answer
    assert int(re.findall(r"max-age=(\d+)", answer["strict-transport-security"])[0]) >= 31536000


def test_every_web_host_is_well(host: Host, wait_for: WaitFor) -> None:
    def states() -> dict[str, str]:
        told = host.check_output("echo 'show stat' | socat - /run/haproxy/admin.sock")
        servers = [line.split(",") for line in told.splitlines() if line.startswith("web,")]
        by_server = {row[1]: row[17] for row in servers if row[1] != "BACKEND"}
        assert by_server
        assert set(by_server.values()) == {"UP"}, by_server
        return by_server

    # A mirror comes back by itself when it has caught up.
    wait_for("every web host to be up", states, 120)


def test_a_start_without_dns_heals(host: Host) -> None:
    section = re.findall(r"(?m)^resolvers system\n(?:    .*\n)+", TEMPLATE.read_text("utf-8"))
    said = host.run("python3 -c %s %s", WITHOUT_DNS, section[0])
    before, _, after = said.stdout.strip().partition(" then ")
    assert "MAINT" in before, said
    assert after, said
    assert "MAINT" not in after, said


def test_a_client_stays_on_one_web_host(host: Host) -> None:
    """Without this, under load, the host with the fewest connections would differ each time."""
    # The journal also has the requests of earlier runs, which may have gone to another web host.
    mark = f"/healthz?stays={uuid.uuid4().hex}"
    for number in range(20):
        assert ask(host, "GET", f"{HERE}{mark}.{number}")["status"] == "200"
    lines = host.check_output("journalctl -u haproxy -n 2000 --no-pager -o cat").splitlines()
    hosts = {json.loads(line)["server"] for line in lines if mark in line}
    assert len(hosts) == 1


@pytest.mark.disruptive
def test_a_client_stays_on_its_web_host_over_a_reload(host: Host, wait_for: WaitFor) -> None:
    """The new process has the old process's table before this client sends another request."""
    assert ask(host, "GET", f"{HERE}/healthz")["status"] == "200"

    def admin(command: str) -> str:
        return str(host.check_output("echo %s | socat - /run/haproxy/admin.sock", command))

    def pid() -> str:
        return re.findall(r"(?m)^Pid: (\d+)", admin("show info"))[0]

    def stays() -> set[tuple[str, str]]:
        entries = re.findall(r"key=(\S+) .*server_id=(\d+)", admin("show table web"))
        return {entry for entry in entries if entry[0] in ("::1", "::ffff:127.0.0.1")}

    before, worker = stays(), pid()
    assert before
    host.check_output("systemctl reload haproxy")
    wait_for("a new worker", lambda: pid() != worker)
    wait_for("the table of the old worker", lambda: before <= stays())


def test_plain_http_is_redirected(host: Host, of_site: Machine | None) -> None:
    answer = ask(host, "GET", "http://localhost/hgfleet?cmd=heads")
    assert answer["status"] == "301"
    # A host of a scenario or the cluster has no public name, so the redirect has the requested
    # name.
    to = re.escape(machine.redirect(of_site, "localhost")) if of_site else rf"{HERE}(:\d+)?"
    assert re.fullmatch(rf"{to}/hgfleet\?cmd=heads", answer["location"])


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_methods_that_hg_does_not_need_are_refused(host: Host, method: str) -> None:
    answer = ask(host, method, f"{HERE}/")
    assert (answer["status"], answer["allow"]) == ("405", "GET, HEAD, POST")


def test_a_connection_counts_before_it_has_sent_a_request(host: Host) -> None:
    """On both ports; the host itself has no limit, and no more than a share is for all clients."""
    text = host.file("/etc/haproxy/haproxy.cfg").content_string
    for name in ("http", "https"):
        frontend = re.findall(rf"(?ms)^frontend {name}$.*?(?=^\S)", text)[0]
        rules = [line.split() for line in frontend.splitlines() if "tcp-request" in line]
        assert [rule[2] for rule in rules] == ["track-sc1", "reject", "reject"], frontend
        most = int(re.findall(r"(?m)^    maxconn (\d+)$", frontend)[0])
        assert int(re.findall(r"fe_conn ge (\d+)", frontend)[0]) < most
    opened = host.check_output(
        "python3 -c %s",
        "import socket, subprocess, sys, time\n"
        "held = [socket.create_connection(('localhost', 443)) for _ in range(5)]\n"
        "show = 'echo show table connections | socat - /run/haproxy/admin.sock'\n"
        "for _ in range(100):\n"
        "    told = subprocess.run(show, shell=True, capture_output=True, text=True).stdout\n"
        "    if any(f'conn_cur={n}' in told for n in range(5, 20)): break\n"
        "    time.sleep(0.1)\n"
        "print(told)\n",
    )
    counts = [int(count) for count in re.findall(r"conn_cur=(\d+)", opened)]
    assert max(counts) >= 5, opened


def test_a_push_is_told_where_to_go_before_its_body_is_sent(host: Host) -> None:
    size = {"Content-Length": str(2**30)}
    answer = ask(host, "POST", f"{HERE}/hgfleet?cmd=unbundle", size)
    assert answer["content-type"] == "application/hg-error"
    assert "a push goes over SSH" in answer["body"]
    assert ask(host, "POST", f"{HERE}/hgfleet?cmd=known", size)["status"] == "413"


def test_many_headers_pass_as_hg_sends_them(host: Host) -> None:
    """A pull with 1,000 common heads: nodes in headers of 1 KB."""
    arguments = "nodes=" + "+".join(["0123456789abcdef0123456789abcdef01234567"] * 1000)
    pieces = [arguments[start : start + 1000] for start in range(0, len(arguments), 1000)]
    headers = {f"X-HgArg-{number}": piece for number, piece in enumerate(pieces, start=1)}
    answer = ask(host, "GET", f"{HERE}/{repository(host)}?cmd=known", headers)
    assert (answer["status"], answer["body"]) == ("200", "0" * 1000)


def test_what_is_no_request_is_refused(host: Host) -> None:
    answer = ask(host, "GET", f"{HERE}/", {"X-Long": "x" * 70_000})
    assert answer["status"] in ("400", "414", "431")


def test_old_tls_is_refused_and_new_tls_spoken(host: Host) -> None:
    command = "echo | openssl s_client -connect localhost:443 -CAfile /etc/hgfleet/tls/ca.pem %s"
    assert host.run(command % "-tls1_1 -cipher DEFAULT@SECLEVEL=0").rc != 0
    assert "Verify return code: 0 (ok)" in host.run(command % "-tls1_3").stdout
    assert host.run(command % "-tls1_2 -cipher AES128-SHA").rc != 0


def test_admin_socket_is_for_root_and_the_proxy_alone(host: Host) -> None:
    socket = host.file("/run/haproxy/admin.sock")
    assert (socket.user, socket.mode) == ("haproxy", 0o600)
    for user in ("nobody", "www-data"):
        asked = host.run(
            "echo 'show info' | runuser -u %s -- socat - /run/haproxy/admin.sock", user
        )
        assert asked.rc != 0, user


def test_no_process_of_the_proxy_is_root(host: Host) -> None:
    assert set(host.check_output("ps -o user= -C haproxy").split()) == {"haproxy"}


def test_the_unit_is_confined(host: Host) -> None:
    report = host.check_output("systemd-analyze security --no-pager haproxy.service")
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", report)
    assert exposure, report
    assert float(exposure[1]) <= 2.0, report


def test_requests_are_logged_to_the_journal(host: Host) -> None:
    ask(host, "GET", f"{HERE}/healthz?logged=yes")
    lines = host.check_output("journalctl -u haproxy -n 50 --no-pager -o cat")
    requests = [json.loads(line) for line in lines.splitlines() if "logged=yes" in line]
    assert requests, lines
    assert requests[-1]["uri"] == "/healthz?logged=yes"
    assert (requests[-1]["status"], requests[-1]["frontend"]) == (200, "https")
    assert requests[-1]["bytes"] > 0
