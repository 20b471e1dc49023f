A push goes to the repository that its session opened, or nowhere.

Two repositories have the same owner, and a session opened the first.

  $ cat > server.rc <<EOF
  > [extensions]
  > access = $TOP/hgext/access.py
  > pinned_store = $TOP/hgext/pinned_store.py
  > EOF
  $ for name in first second; do
  >     hg init $name
  >     printf '[hgfleet]\npath = people/bob/%s\nread =\nowner = bob\n' $name > $name/.hg/hgrc
  > done
  $ cat > session <<EOF
  > #!/bin/sh
  > HGRCPATH=$TESTTMP/server.rc exec hg -R $TESTTMP/first serve --stdio
  > EOF
  $ chmod +x session
  $ cat >> $HGRCPATH <<EOF
  > [ui]
  > ssh = $TESTTMP/session
  > EOF
  $ HGFLEET_USER=bob HGFLEET_GROUPS=
  $ export HGFLEET_USER HGFLEET_GROUPS
  $ hg clone -q ssh://host/first work
  $ cd work
  $ echo one > file
  $ hg commit -qAm one

While the push is under way, its owner renames the repository and puts the other in its place.

  $ cat > ../replace <<EOF
  > mv $TESTTMP/first $TESTTMP/renamed && mv $TESTTMP/second $TESTTMP/first
  > EOF
  $ hg push -q --config hooks.preoutgoing="sh ../replace"
  remote: people/bob/first was renamed, archived or replaced while this session used it; nothing was changed, push again
  abort: push failed on remote
  [255]
  $ hg -R ../first log
  $ hg -R ../renamed log

The same push, made again, goes to the repository that has the path now.

  $ hg push -q
  $ hg -R ../first log -T '{desc}\n'
  one

The push does not go anywhere when nothing has taken the path.

  $ echo two > file
  $ hg commit -qm two
  $ hg push -q --config hooks.preoutgoing="mv ../first ../away"
  remote: people/bob/second was renamed, archived or replaced while this session used it; nothing was changed, push again
  abort: push failed on remote
  [255]
  $ hg -R ../away log -T '{desc}\n'
  one
