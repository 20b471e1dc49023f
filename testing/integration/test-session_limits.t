The extension `session_limits` bounds the resources of a session over SSH.

  $ mkdir -m 700 sessions
  $ cat > server.rc <<EOF
  > [extensions]
  > access = $TOP/hgext/access.py
  > hardening = $TOP/hgext/hardening.py
  > session_limits = $TOP/hgext/session_limits.py
  > [hgfleet]
  > sessions = $TESTTMP/sessions
  > push-disk-free = 0
  > EOF
  $ hg init server
  $ cat > server/.hg/hgrc <<EOF
  > [hgfleet]
  > path = team/tool
  > read = public
  > push = maintainers
  > EOF
  $ cat > session <<EOF
  > #!/bin/sh
  > HGRCPATH=$TESTTMP/server.rc:$TESTTMP/more.rc exec hg -R $TESTTMP/server serve --stdio
  > EOF
  $ chmod +x session
  $ cat >> $HGRCPATH <<EOF
  > [ui]
  > ssh = $TESTTMP/session
  > EOF
  $ limit() { printf '[hgfleet]\n' > $TESTTMP/more.rc; printf '%s\n' "$@" >> $TESTTMP/more.rc; }
  $ as() { HGFLEET_USER=$1 HGFLEET_GROUPS=$2; export HGFLEET_USER HGFLEET_GROUPS; }
  $ limit
  $ as alice maintainers

Clones and pushes work as usual, and nothing is left of the pushed data.

  $ hg clone -q ssh://host/server work
  $ cd work
  $ echo one > file
  $ hg commit -qAm one
  $ hg push -q
  $ ls $TESTTMP/sessions
  alice.0.slot

Data is received in the folder of sessions, and not in the temporary folder; the repository is locked afterwards.

  $ python -c 'import os; open("random", "wb").write(os.urandom(300000))'
  $ hg commit -qAm random
  $ mkdir $TESTTMP/temporary
  $ printf "[hooks]\npretxnopen.look = ls $TESTTMP/sessions $TESTTMP/temporary\n" >> $TESTTMP/more.rc
  $ TMPDIR=$TESTTMP/temporary hg push 2>&1 | grep -v 'changes\|manifests\|pushing'
  remote: */sessions: (glob)
  remote: alice.0.push
  remote: alice.0.slot
  remote: 
  remote: */temporary: (glob)
  $ limit

A push that is too large ends at the number of bytes that it may have.

  $ limit 'push-size = 100 KB'
  $ python -c 'import os; open("random", "wb").write(os.urandom(3000000))'
  $ hg commit -qm large
  $ hg push 2>&1 | grep remote
  remote: abort: this push has more than the 102400 bytes that a single push may have (* bytes were sent); push fewer changesets at a time with "hg push --rev REV", or ask the operators to bring the history in (glob)
  $ limit 'push-size-person = 100 KB'
  $ hg push 2>&1 | grep remote
  remote: abort: your pushes that are under way have more than the 102400 bytes that they may have together (* of this push were sent); push again when the others are done (glob)
  $ ls $TESTTMP/sessions
  alice.0.slot

A push that would fill the disk is refused before it is sent.

  $ limit 'push-disk-free = 1000000 GB'
  $ hg push 2>&1 | grep remote
  remote: abort: the disk of this service has * left, less than the 1000000 GiB that stay free (0 bytes of this push were sent); nothing was changed; tell the operators (glob)
  $ hg log -R ../server -T '{desc}\n'
  random
  one

One that fills the disk while it is written ends with a sentence that names no path of the server.

  $ limit
  $ cat > ../full.py <<EOF
  > import errno, os
  > from mercurial import exchange, extensions
  > def unbundle(original, *arguments):
  >     raise OSError(getattr(errno, os.environ["ERROR"]), "secret", "/srv/secret")
  > def extsetup(ui):
  >     extensions.wrapfunction(exchange, "unbundle", unbundle)
  > EOF
  $ printf "[extensions]\nfull = $TESTTMP/full.py\n" >> $TESTTMP/more.rc
  $ ERROR=ENOSPC hg push 2>&1 | grep remote
  remote: abort: the disk of this service takes no more data, so nothing was changed; the operators know. Try again later
  $ ERROR=EDQUOT hg push 2>&1 | grep -c 'takes no more data'
  1
  $ ERROR=EACCES hg push 2>&1 | grep -c secret
  0
  [1]
  $ ls $TESTTMP/sessions
  alice.0.slot

Pushed data of a killed session is removed by the next push.

  $ limit
  $ echo left over > $TESTTMP/sessions/bob.3.push
  $ hg push -q
  $ ls $TESTTMP/sessions
  alice.0.slot
  bob.3.slot

A person who may not push is refused before any data is read: here none is sent, and the session ends.

  $ as bob sandbox
  $ serve() { $TESTTMP/session; }
  $ printf 'unbundle\nheads 10\n666f7263658000000000\n' | serve
  109
  bob may not push to team/tool: members of maintainers may; ask one of them to push, or an operator to add you (no-eol)
  $ echo two > two
  $ hg commit -qAm two
  $ hg push
  pushing to ssh://host/server
  searching for changes
  abort: unexpected remote reply: bob may not push to team/tool: members of maintainers may; ask one of them to push, or an operator to add you
  [255]

Arguments are refused before they are read.

  $ printf 'lookup\nkey 8000000000\n' | serve
  abort: the argument 'key' has 8000000000 bytes, and 1024 are allowed here; ask for less at a time, such as with --rev
  [255]
  $ printf 'known\nnodes 8000000000\n' | serve
  abort: the argument 'nodes' has 8000000000 bytes, and 8388608 are allowed here; ask for less at a time, such as with --rev
  [255]
  $ printf 'known\n* 0\nnodes -1\n' | serve
  abort: this request cannot be read: got '-1' for the length of the argument 'nodes', expected a number; if your client is Mercurial, tell the operators
  [255]

The memory of a session is limited. This request needs more.

  $ limit 'session-memory = 256 MB'
  $ cat > $TESTTMP/hungry.py <<EOF
  > from mercurial import wireprotov1server
  > def hungry(repo, proto):
  >     return bytearray(512 * 2**20)
  > def extsetup(ui):
  >     wireprotov1server.commands[b'heads'].func = hungry
  > EOF
  $ printf "[extensions]\nhungry = $TESTTMP/hungry.py\n" >> $TESTTMP/more.rc
  $ echo heads | serve
  abort: this request needs more memory than the 256 MiB that a session may take; push or pull fewer changesets at a time (--rev), or smaller files
  [255]

Where the system does not let a session set that limit, the session goes on.

  $ cat > $TESTTMP/forbid.py <<EOF
  > import resource
  > def forbidden(*limit):
  >     raise PermissionError(1, 'Operation not permitted')
  > resource.setrlimit = forbidden
  > EOF
  $ limit
  $ printf "[extensions]\nforbid = $TESTTMP/forbid.py\n" >> $TESTTMP/more.rc
  $ echo heads | serve
  41
  * (glob)

Pushed data takes no memory, with pieces of any size.

  $ limit 'session-memory = 192 MB' 'push-size = 1 GB'
  $ as alice maintainers
  $ (printf 'unbundle\nheads 10\n666f726365268435456\n'; head -c 268435456 /dev/zero | tr '\0' x; echo 0) | serve
  0
  abort: stream: not a Mercurial bundle
  0
  1
  0 (no-eol)
  $ as bob sandbox

The number of sessions of a person is limited. Here a session is open already, as long as a lock is held.

  $ limit 'sessions-person = 1'
  $ flock $TESTTMP/sessions/bob.0.slot $TESTTMP/session < /dev/null
  abort: bob has too many sessions on this server: 1 at a time are allowed; wait until a clone, pull or push of yours is done, or end a session
  [255]
  $ HGFLEET_USER=alice flock $TESTTMP/sessions/bob.0.slot $TESTTMP/session < /dev/null
  $ serve < /dev/null

A silent client is disconnected, between two requests and inside of a request.

  $ limit 'session-idle = 0'
  $ mkfifo silence
  $ sleep 60 > silence & holder=$!
  $ serve < silence
  abort: this session had no request for 0 seconds; connect again
  [255]
  $ limit 'session-stall = 0'
  $ (printf 'lookup\nkey 10\nabc'; exec sleep 60) > silence & other=$!
  $ serve < silence
  abort: nothing arrived for 0 seconds in the middle of a request; nothing was changed, try again
  [255]
  $ kill $holder $other

Without the folder of sessions clones go on, and pushes are refused.

  $ limit "sessions = $TESTTMP/nowhere"
  $ as alice maintainers
  $ echo heads | serve
  41
  * (glob)
  $ printf 'unbundle\nheads 10\n666f7263654\nHG200\n' | serve
  abort: this push cannot be received, because the folder for it is not in order; nothing was changed; tell the operators
  [255]

A client that disconnects in the middle is no defect.

  $ limit
  $ as alice maintainers
  $ printf 'unbundle\nheads 10\n666f72636599\nHG20' | serve
  0
  $ ls $TESTTMP/sessions/*.push
  ls: cannot access '*': No such file or directory (glob)
  [2]

A name to look up is only a name: no revset and no pattern.

  $ ask() { printf 'lookup\nkey %d\n%s' ${#1} "$1" | serve; echo; }
  $ for key in 'all()' 'heads(all())' 'tip^' '0:tip' 'file("set:grep(x)")' 're:.*' "file('listfile:/etc/passwd')" ; do ask "$key"; done
  27
  0 unknown revision 'all()'
  
  34
  0 unknown revision 'heads(all())'
  
  26
  0 unknown revision 'tip^'
  
  27
  0 unknown revision '0:tip'
  
  41
  0 unknown revision 'file("set:grep(x)")'
  
  27
  0 unknown revision 're:.*'
  
  50
  0 unknown revision 'file('listfile:/etc/passwd')'
  
