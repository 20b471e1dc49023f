"""Web hosts as HAProxy sees them."""

from __future__ import annotations

from testing.support import loading

haproxy = loading.module("ansible/on_host/haproxy.py")


STAT = """\
# pxname,svname,qcur,qmax,scur,smax,slim,stot,status,weight,
https,FRONTEND,,,3,9,4096,77,OPEN,,
web,hgweb1,0,0,2,4,64,50,UP,1,
web,hgweb2,0,0,1,4,64,50,DOWN,1,
web,hg1,0,0,0,4,64,50,UP 1/2,1,
web,BACKEND,0,0,3,4,410,100,UP,1,
"""


def test_the_servers_of_the_web_are_read() -> None:
    assert haproxy.parse(STAT) == {
        "hgweb1": haproxy.Server(True, 2),
        "hgweb2": haproxy.Server(False, 1),
        "hg1": haproxy.Server(True, 0),
    }


def test_a_host_is_away_without_health_and_without_clients() -> None:
    servers = haproxy.parse(STAT)
    names = ["hgweb1", "hgweb2", "unknown"]
    assert haproxy.unfinished("away", servers, names) == ["hgweb1", "hgweb2"]
    assert haproxy.unfinished("away", {"hgweb2": haproxy.Server(False, 0)}, names) == []


def test_a_host_is_back_with_health() -> None:
    assert haproxy.unfinished("back", haproxy.parse(STAT), ["hgweb1", "hgweb2", "unknown"]) == [
        "hgweb2"
    ]
