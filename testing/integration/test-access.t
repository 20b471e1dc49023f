The extension `access` refuses every write by a user who may not push.

A server with a repository as `hgfleet registry apply` leaves it: the generated hgrc says who may
push.

  $ cat > server.rc <<EOF
  > [extensions]
  > access = $TOP/hgext/access.py
  > access:required = yes
  > blackbox =
  > [blackbox]
  > track = access
  > EOF
  $ hg init server
  $ cat > server/.hg/hgrc <<EOF
  > [hgfleet]
  > path = team/tool
  > read = public
  > push = maintainers staff
  > EOF

This is the command that sshd runs for a session, with the person in the environment.

  $ cat > session <<EOF
  > #!/bin/sh
  > HGRCPATH=$TESTTMP/server.rc exec hg -R $TESTTMP/server serve --stdio
  > EOF
  $ chmod +x session
  $ cat >> $HGRCPATH <<EOF
  > [ui]
  > ssh = $TESTTMP/session
  > EOF
  $ as() { HGFLEET_USER=$1 HGFLEET_GROUPS=$2; export HGFLEET_USER HGFLEET_GROUPS; }

All users may clone.

  $ as bob sandbox
  $ hg clone -q ssh://host/server work
  $ cd work
  $ echo one > file
  $ hg commit -qAm one

bob is in none of the groups. He reads who may push, and nothing is stored.

  $ hg push
  pushing to ssh://host/server
  searching for changes
  abort: unexpected remote reply: bob may not push to team/tool: members of maintainers or staff may; ask one of them to push, or an operator to add you
  [255]
  $ hg log -R ../server -T '{node}\n'

A person without any group is refused too, and so is a person whose group only begins like the right group.

  $ as dora ''
  $ hg push -q
  abort: unexpected remote reply: dora may not push to team/tool: members of maintainers or staff may; ask one of them to push, or an operator to add you
  [255]
  $ as eve maintainers-emeriti
  $ hg push -q
  abort: unexpected remote reply: eve may not push to team/tool: members of maintainers or staff may; ask one of them to push, or an operator to add you
  [255]

They are refused before they send anything: this session cannot write a single byte to any file.

  $ cat > $TESTTMP/thrifty <<EOF
  > #!/bin/sh
  > ulimit -f 0
  > HGRCPATH=$TESTTMP/server.rc:$TESTTMP/thrifty.rc exec hg -R $TESTTMP/server serve --stdio
  > EOF
  $ chmod +x $TESTTMP/thrifty
  $ printf '[extensions]\nblackbox = !\n' > $TESTTMP/thrifty.rc
  $ hg push -q --config ui.ssh=$TESTTMP/thrifty
  abort: unexpected remote reply: eve may not push to team/tool: members of maintainers or staff may; ask one of them to push, or an operator to add you
  [255]

alice pushes.

  $ as alice sandbox,maintainers
  $ hg push
  pushing to ssh://host/server
  searching for changes
  remote: adding changesets
  remote: adding manifests
  remote: adding file changes
  remote: added 1 changesets with 1 changes to 1 files

A bookmark is a write as well, also when no changeset comes with them.

  $ as bob sandbox
  $ hg bookmark stolen
  $ hg push -B stolen
  pushing to ssh://host/server
  searching for changes
  no changes found
  abort: unexpected remote reply: bob may not push to team/tool: members of maintainers or staff may; ask one of them to push, or an operator to add you
  [255]
  $ hg bookmarks -R ../server
  no bookmarks set
  $ hg debugpushkey ssh://host/server bookmarks stolen '' $(hg log -r . -T '{node}')
  remote: error: pretxnopen.access hook failed: write refused
  remote: abort: bob may not push to team/tool: members of maintainers or staff may; ask one of them to push, or an operator to add you
  abort: unexpected response: empty string
  [255]

Without a name nothing is written: by a web worker, a job, or a user who runs hg on the server.

  $ as '' ''
  $ hg push -q -B stolen
  abort: unexpected remote reply: writing to team/tool needs a name: push over SSH, or set HGFLEET_USER=operator:NAME as an administrator of this host
  [255]
  $ HGRCPATH=$TESTTMP/server.rc hg -R ../server bookmark stolen
  error: pretxnopen.access hook failed: write refused
  abort: writing to team/tool needs a name: push over SSH, or set HGFLEET_USER=operator:NAME as an administrator of this host
  [255]
  $ unset HGFLEET_USER HGFLEET_GROUPS
  $ hg push -q -B stolen
  abort: unexpected remote reply: writing to team/tool needs a name: push over SSH, or set HGFLEET_USER=operator:NAME as an administrator of this host
  [255]

An operator in a shell of the server may write under a name, which is in the log.

  $ as operator: maintainers
  $ hg push -q -B stolen
  abort: unexpected remote reply: writing to team/tool needs a name: push over SSH, or set HGFLEET_USER=operator:NAME as an administrator of this host
  [255]
  $ as operator:root ''
  $ hg push -B stolen
  pushing to ssh://host/server
  searching for changes
  no changes found
  exporting bookmark stolen
  [1]
  $ hg bookmarks -R ../server
     stolen                    0:* (glob)
  $ grep -o 'allowed: user=operator.*' ../server/.hg/blackbox.log
  allowed: user=operator:root reason=operator transaction=* (glob)
  $ grep -c 'refused: user=bob reason=groups' ../server/.hg/blackbox.log
  3

No configuration disables the check, not even the generated hgrc of the repository.

  $ cat >> ../server/.hg/hgrc <<EOF
  > [hooks]
  > pretxnopen.access =
  > EOF
  $ as bob sandbox
  $ echo two > file
  $ hg commit -qm two
  $ hg push -q
  abort: unexpected remote reply: bob may not push to team/tool: members of maintainers or staff may; ask one of them to push, or an operator to add you
  [255]

No user pushes to a repository that is read-only, and a user who may not read may not push.

  $ write() { printf '[hgfleet]\n' > ../server/.hg/hgrc; printf '%s\n' "$@" >> ../server/.hg/hgrc; }
  $ as alice maintainers
  $ write 'path = team/tool' 'read = public' 'push ='
  $ hg push -q
  abort: unexpected remote reply: alice may not push to team/tool: it is read-only; an operator can name groups for it in the registry
  [255]
  $ write 'path = team/tool' 'read = staff' 'push = maintainers'
  $ hg push -q
  abort: unexpected remote reply: alice may not push to team/tool: only members of staff may read it; ask an operator to add you
  [255]

The owner who created a repository may push to it, in any group or none, and is its only reader when no other is named.

  $ write 'path = people/dora/x' 'read =' 'push =' 'owner = dora'
  $ hg push -q
  abort: unexpected remote reply: alice may not push to people/dora/x: only its owner may read it
  [255]
  $ as dora ''
  $ hg push -q

A repository may be read-only for a while; then its owner and all other users read why, and only an operator writes.

  $ write 'path = people/dora/x' 'read = public' 'push = maintainers' 'owner = dora' 'read-only = moving until noon'
  $ echo three > file
  $ hg commit -qm three
  $ hg push -q
  abort: unexpected remote reply: dora may not push to people/dora/x now: it is read-only (moving until noon); nothing was changed, push again later
  [255]
  $ as alice maintainers
  $ hg push -q
  abort: unexpected remote reply: alice may not push to people/dora/x now: it is read-only (moving until noon); nothing was changed, push again later
  [255]
  $ as operator:root ''
  $ hg push -q
  $ as alice maintainers

A repository that the registry does not know takes nothing.

  $ rm ../server/.hg/hgrc
  $ echo four > file
  $ hg commit -qm four
  $ hg push -q
  abort: unexpected remote reply: alice may not push here: this repository is not in the registry; an operator has to declare it and run the play
  [255]

The server is whole after all of this.

  $ hg verify -q -R ../server
