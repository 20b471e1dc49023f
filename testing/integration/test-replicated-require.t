A site may refuse pushes that would be on a single host only (`replication-require`). The relay of this
test gives the answer of a file.

  $ . $TESTDIR/pushed.sh
  $ mkdir counters
  $ cat > server.rc <<EOF
  > [extensions]
  > replicated = $TOP/hgext/replicated.py
  > access = $TOP/hgext/access.py
  > pushcounts = $TOP/hgext/pushcounts.py
  > [hgfleet]
  > path = team/tool
  > read = public
  > push = staff
  > counters = $TESTTMP/counters
  > relay = $TESTTMP/wake.sock
  > replication-wait = 0
  > replication-require = mirror
  > EOF
  $ prepared
  $ stored() { hg -R ../tool log -r 'all()' -T '{desc}\n'; hg -R ../tool bookmarks -T '{bookmark}\n'; }

Without a relay, a push is refused before its data is read.

  $ push
  abort: unexpected remote reply: each push needs a copy on a mirror here (replication_require), and the relay of this host does not answer: nothing was changed; push again in a minute, or tell the operators
  [255]
  $ stored
  $ cat ../counters/pushes
  uncopied 1

The push is also refused while the broker is away, and without a mirror.

  $ relay
  $ answer '{"broker": false, "visible": 2, "of": 2}'
  $ push
  abort: unexpected remote reply: each push needs a copy on a mirror here (replication_require), and the broker is away, or takes no pushes: nothing was changed; push again in a minute, or tell the operators
  [255]
  $ answer '{"broker": true, "visible": 0, "of": 2}'
  $ push
  abort: unexpected remote reply: each push needs a copy on a mirror here (replication_require), and no mirror is connected and up to date: nothing was changed; push again in a minute, or tell the operators
  [255]
  $ cat ../asked
  {"require": "mirror", "wait": 0.0}
  {"require": "mirror", "wait": 0.0}
  $ stored

A person who may not push reads nothing of that, in any order of the extensions.

  $ WHO=mallory GROUP=guests push | grep -o 'mallory may not push'
  mallory may not push

Other commands that write are refused as well: a bookmark without a bundle.

  $ cat > ../pushkey.py <<EOF
  > from mercurial import hg, ui
  > peer = hg.peer(ui.ui.load(), {b"ssh": b"$TESTTMP/ssh"}, b"ssh://host/tool")
  > with peer.commandexecutor() as executor:
  >     asked = {b"namespace": b"bookmarks", b"key": b"here", b"old": b"", b"new": b"0" * 40}
  >     executor.callcommand(b"pushkey", asked).result()
  > EOF
  $ python3 ../pushkey.py 2>&1 | grep -o 'each push needs a copy on a mirror here'
  each push needs a copy on a mirror here
  $ stored

An operator repairs the host in the meantime.

  $ WHO=operator:olga push
  $ stored
  one

With a mirror, or with less required, the push goes on.

  $ answer '{"broker": true, "visible": 1, "of": 2}'
  $ echo 2 >> file
  $ hg commit -qm two
  $ push
  $ answer '{"broker": true, "visible": 0, "of": 2}'
  $ sed -i 's/^replication-require.*/replication-require = broker/' ../server.rc
  $ echo 3 >> file
  $ hg commit -qm three
  $ push
  $ kill `cat ../relay.pid`
  $ rm ../wake.sock
  $ sed -i 's/^replication-require.*/replication-require = none/' ../server.rc
  $ echo 4 >> file
  $ hg commit -qm four
  $ push
  $ stored
  one
  two
  three
  four

Values that make no sense refuse pushes, because the operators want a copy.

  $ sed -i 's/^replication-require.*/replication-require = mirrors/' ../server.rc
  $ echo 5 >> file
  $ hg commit -qm five
  $ push
  abort: unexpected remote reply: the setting replication-require is 'mirrors', expected none, broker, mirror; nothing was changed; tell the operators (role `mercurial`)
  [255]
  $ sed -i 's/^replication-require.*/replication-require = broker/' ../server.rc
  $ sed -i 's/^replication-wait.*/replication-wait = soon/' ../server.rc
  $ push
  abort: unexpected remote reply: each push needs a copy at the broker here (replication_require), and the relay of this host does not answer: nothing was changed; push again in a minute, or tell the operators
  [255]
