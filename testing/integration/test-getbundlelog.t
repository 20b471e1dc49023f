The extension `getbundlelog` logs the cost of clones and pulls over SSH.

  $ cat > server.rc <<EOF
  > [extensions]
  > getbundlelog = $TOP/hgext/getbundlelog.py
  > [hgfleet]
  > demand-log = $TESTTMP/log
  > EOF
  $ cat > session <<EOF
  > #!/bin/sh
  > HGRCPATH=$TESTTMP/server.rc exec hg -R $TESTTMP/server serve --stdio
  > EOF
  $ chmod +x session
  $ cat >> $HGRCPATH <<EOF
  > [ui]
  > ssh = $TESTTMP/session;:
  > EOF
  $ hg init server
  $ printf '[hgfleet]\npath = team/tool\n' > server/.hg/hgrc
  $ echo one > server/file
  $ hg -R server commit -q -A -m one

A clone is a single line, and has all that `hgfleet bundles` wants to know.

  $ hg clone -q ssh://host/server clone
  $ sed -E 's/[0-9]{4}-[0-9-]+T[0-9:]+Z/WHEN/; s/"duration":[0-9.]+/"duration":SECONDS/; s/"bytes":[1-9][0-9]+/"bytes":SIZE/' log
  {"time":"WHEN","repository":"team/tool","command":"getbundle","changesets":true,"full":true,"bytes":SIZE,"duration":SECONDS}
  $ python3 -c "import os; print(oct(os.stat('log').st_mode & 0o137))"
  0o0

A pull is a second line; a pull that finds nothing adds none, and a push adds none.

  $ echo two > server/file
  $ hg -R server commit -q -m two
  $ hg -R clone pull -q
  $ hg -R clone pull -q
  $ hg -R clone update -q -C
  $ echo three > clone/file
  $ hg -R clone commit -q -m three
  $ hg -R clone push -q
  $ grep -c . log
  2
  $ grep -c '"full":false' log
  1

A log that cannot be written, or is a link to somewhere else, fails no clone.

  $ rm log
  $ ln -s $TESTTMP/elsewhere log
  $ hg clone -q ssh://host/server other
  $ test -e elsewhere
  [1]
