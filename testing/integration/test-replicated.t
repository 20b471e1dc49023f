The extension `replicated` tells the pusher which mirrors show a push. The relay of this test gives
the answer of a file; the push log is the only attribute that the extension reads.

  $ . $TESTDIR/pushed.sh
  $ cat > recorded.py <<EOF
  > def reposetup(ui, repo):
  >     if repo.local():
  >         repo.ui.setconfig(b"hooks", b"pretxnclose.recorded", record, b"test")
  > def record(ui, repo, **more):
  >     from hgfleet.pushlog import shared
  >     shared.of(repo).recorded = shared.Recorded("ab" * 16, 42, 1000, "5f" * 32)
  > EOF
  $ cat > server.rc <<EOF
  > [extensions]
  > recorded = $TESTTMP/recorded.py
  > replicated = $TOP/hgext/replicated.py
  > [hgfleet]
  > path = team/tool
  > EOF
  $ prepared
  $ push() {
  >   echo \$RANDOM$1 >> file; hg commit -qm "$1"
  >   hg push --config ui.ssh=$TESTTMP/ssh ssh://host/tool 2>&1 | grep 'remote: push'
  > }

A host without replication says that the push is recorded.

  $ push one
  remote: push 42 recorded

Where no relay answers, the push goes on and says so.

  $ cat >> ../server.rc <<EOF
  > relay = $TESTTMP/wake.sock
  > replication-wait = 2
  > EOF
  $ push two
  remote: push 42 recorded; replication is down, mirrors will show it later

The relay reads which push it is, and the pusher reads the relay's answer.

  $ relay
  $ answer '{"visible": 2, "of": 2, "seconds": 0.314, "slow": [], "down": [], "broker": true}'
  $ push three
  remote: push 42 recorded; visible on 2/2 mirrors in 0.31 s
  $ cat ../asked
  {"path": "team/tool", "repository": "abababababababababababababababab", "id": 42, "hash": "5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f", "wait": 2.0}
A session has an id. The pusher reads it, and the relay names it to mirrors.

  $ > ../asked
  $ HGFLEET_ID=1f2e3d4c5b6a7988 push id
  remote: push 42 recorded; visible on 2/2 mirrors in 0.31 s; id 1f2e3d4c5b6a7988
  $ cat ../asked
  {"path": "team/tool", "repository": "abababababababababababababababab", "id": 42, "hash": "5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f", "session": "1f2e3d4c5b6a7988", "wait": 2.0}
  $ HGFLEET_ID="x' event=push" push noid
  remote: push 42 recorded; visible on 2/2 mirrors in 0.31 s

Mirrors that are late or down are named.

  $ answer '{"visible": 1, "of": 2, "seconds": 2, "slow": ["hgweb2"], "down": [], "broker": true}'
  $ push four
  remote: push 42 recorded; hgweb2 does not show it yet (waited 2 s); visible on 1/2 mirrors
  $ answer '{"visible": 0, "of": 2, "seconds": 2, "slow": [], "down": [], "broker": false}'
  $ push five
  remote: push 42 recorded; replication is down, mirrors will show it later

An answer that makes no sense fails no push, and a transaction without a record prints nothing.

  $ answer '[[["nonsense'
  $ push six
  remote: push 42 recorded; replication is down, mirrors will show it later
  $ answer '{"visible": "x", "broker": 7}'
  $ push seven
  remote: push 42 recorded; replication is down, mirrors will show it later
  $ sed -i 's/^replication-wait.*/replication-wait = soon/' ../server.rc
  $ push eight
  remote: push 42 recorded
  $ sed -i '/^recorded/d' ../server.rc
  $ push nine
  [1]
  $ hg -R ../tool log -r tip -T '{desc}\n'
  nine
  $ kill `cat ../relay.pid`
