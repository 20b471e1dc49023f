The extension `pushcounts` counts pushes over SSH, how they end and how long they take.

  $ mkdir counters
  $ mkdir -m 700 sessions
  $ cat > server.rc <<EOF
  > [extensions]
  > access = $TOP/hgext/access.py
  > policies = $TOP/hgext/policies.py
  > hardening = $TOP/hgext/hardening.py
  > session_limits = $TOP/hgext/session_limits.py
  > pushlog = $TOP/hgext/pushlog.py
  > pushcounts = $TOP/hgext/pushcounts.py
  > [hgfleet]
  > counters = $TESTTMP/counters
  > sessions = $TESTTMP/sessions
  > push-disk-free = 0
  > pushlog = yes
  > path = team/tool
  > read = public
  > push = staff
  > policies = {"no-symlinks": {}}
  > [server]
  > bundle1 = no
  > EOF
  $ hg init tool
  $ cat > ssh <<EOF
  > #!/bin/sh
  > HGRCPATH=$TESTTMP/server.rc:$TESTTMP/more.rc HGFLEET_USER=\${WHO:-alice} \\
  >   HGFLEET_GROUPS=\${GROUP:-staff} exec hg -R $TESTTMP/tool serve --stdio
  > EOF
  $ chmod +x ssh
  $ loud() { hg push --config ui.ssh=$TESTTMP/ssh ssh://host/tool "$@" 2>&1; }
  $ push() { loud -q "$@"; }
  $ limit() { printf '[hgfleet]\n' > $TESTTMP/more.rc; printf '%s\n' "$@" >> $TESTTMP/more.rc; }
  $ limit
  $ cat > counts.py <<EOF
  > for line in sorted(open("$TESTTMP/counters/pushes")):
  >     if line.count(" ") == 1:
  >         print(line, end="")
  > EOF
  $ counts() { python $TESTTMP/counts.py; }

An accepted push counts with its time. So does a push that only moves a bookmark.

  $ hg init work
  $ cd work
  $ echo 1 > file
  $ hg commit -qAm one
  $ push
  $ counts
  accepted 1
  $ hg bookmark -r 0 here
  $ push -B here
  [1]
  $ counts
  accepted 2
  $ cat > ../times.py <<EOF
  > lines = [line.rpartition(" ") for line in open("$TESTTMP/counters/pushes")]
  > found = {name: float(value) for name, _, value in lines}
  > print(0 < found["accepted seconds"] < 60)
  > print(sum(value for name, value in found.items() if name.startswith("accepted at most ")))
  > EOF
  $ python ../times.py
  True
  2.0

The counts are readable for every user of the host, and name no person or repository.

  $ stat -c %a ../counters/pushes
  644
  $ grep -c 'alice\|team' ../counters/pushes
  0
  [1]

A clone and a pull are no push.

  $ hg clone -q --config ui.ssh=$TESTTMP/ssh ssh://host/tool ../clone
  $ counts
  accepted 2

Refusals have the reason of the extension: before the data is read, and at the end of the transaction.

  $ ln -s file link
  $ hg commit -qAm link
  $ WHO=mallory GROUP=guests push | grep -o 'may not push'
  may not push
  $ loud | grep -o 'link: .*'
  link: replace it by a file (hg commit --amend)
  $ limit 'read-only = moving until noon'
  $ push | grep -o 'moving until noon'
  moving until noon
  $ limit 'replica-of = hg1'
  $ push | grep -o 'is a copy on this host'
  is a copy on this host
  $ limit 'push-size = 10'
  $ loud | grep -o 'more than the 10 bytes'
  more than the 10 bytes
  $ limit
  $ counts
  accepted 2
  access 1
  limits 1
  mirror 1
  policies 1
  read-only 1

A policy that cannot be checked, a damaged push log and a fence are failures of the service.

  $ limit 'policies = {"no-such": {}}'
  $ push | grep -o 'could not be checked'
  could not be checked
  $ limit "fence = $TESTTMP/fenced"
  $ echo 'hg2 is the primary' > ../fenced
  $ push | grep -o 'hg2 is the primary'
  hg2 is the primary
  $ limit 'policies ='
  $ cp ../tool/.hg/store/pushlog ../pushlog
  $ echo damaged >> ../tool/.hg/store/pushlog
  $ push | grep -o 'does not go on'
  does not go on
  $ cp ../pushlog ../tool/.hg/store/pushlog
  $ limit
  $ counts | grep 'fenced\|policies-failed\|pushlog'
  fenced 1
  policies-failed 1
  pushlog 1

Data that is no bundle, and a session that ends in the middle of its data.

  $ as_alice() { HGRCPATH=$TESTTMP/server.rc HGFLEET_USER=alice HGFLEET_GROUPS=staff hg -R ../tool serve --stdio; }
  $ printf 'unbundle\nheads 10\n666f7263654\nJUNK0\n' | as_alice > ../said 2>&1
  $ printf 'unbundle\nheads 10\n666f72636520\nHG' | as_alice > ../said 2>&1
  $ printf 'unbundle\nheads 10\n666f726365xyz\n' | as_alice > ../said 2>&1
  [255]
  $ counts | grep 'disconnected\|invalid\|malformed'
  disconnected 1
  invalid 1
  malformed 1

A push waits longer for a lock that another process holds than it may.

  $ limit '[ui]' 'timeout = 1'
  $ ln -s elsewhere:1 ../tool/.hg/store/lock
  $ loud | grep -o 'timed out waiting for lock'
  timed out waiting for lock
  $ rm ../tool/.hg/store/lock
  $ limit
  $ counts | grep locked
  locked 1

A race: another push comes after this push has looked at the heads.

  $ hg strip -q --config extensions.strip= -r tip --no-backup
  $ cat > race.sh <<EOF
  > HGRCPATH=$TESTTMP/server.rc HGFLEET_USER=alice HGFLEET_GROUPS=staff hg -R $TESTTMP/clone push -q --config ui.ssh=$TESTTMP/ssh ssh://host/tool
  > EOF
  $ (cd ../clone && echo other > other && hg commit -qAm other)
  $ echo 2 > file
  $ hg commit -qm two
  $ push --config "hooks.prepushkey=true" --config "hooks.preoutgoing=sh $TESTTMP/work/race.sh" | grep -o 'repository changed while' | head -1
  repository changed while
  $ counts | grep raced
  raced 1

Counts never fail a push: not a missing folder, not a damaged file, which begins again.

  $ hg pull -q --config ui.ssh=$TESTTMP/ssh ssh://host/tool
  $ echo damage > ../counters/pushes
  $ push -f
  $ counts
  accepted 1
  $ rm -r ../counters
  $ echo 3 > file
  $ hg commit -qm three
  $ push
