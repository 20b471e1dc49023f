The extension `pushlog_index` keeps the index of the push log close to its log.

  $ cat > server.rc <<EOF
  > [extensions]
  > pushlog_index = $TOP/hgext/pushlog_index.py
  > EOF
  $ hg init tool
  $ export HGRCPATH=$HGRCPATH:$TESTTMP/server.rc

A log of pushes that is made elsewhere, and a way to look at the index:

  $ log() {
  >   python -c 'import pathlib, sys
  > sys.path[:0] = [sys.argv[1]]
  > from testing.support.pushlog_lines import Chain, node_of
  > chain = Chain(pathlib.Path("tool/.hg/store/pushlog"))
  > for number in range(int(sys.argv[2])):
  >     chain.push(node_of(number))' "$TOP" "$1"
  > }
  $ covered() {
  >   python -c 'import sqlite3, sys
  > print(*sqlite3.connect(sys.argv[1]).execute("SELECT id FROM covered").fetchone())' \
  >     tool/.hg/cache/pushlog.sqlite
  > }

After a transaction nothing happens while the log is short, and without a log.

  $ cd tool; echo 1 > file; hg commit -qAm one; cd ..
  $ ls tool/.hg/cache | grep pushlog
  [1]
  $ log 3
  $ cd tool; echo 2 > file; hg commit -qm two; cd ..
  $ ls tool/.hg/cache | grep pushlog
  [1]

After the transaction that finds enough of the log uncovered, the index has all pushes.

  $ rm tool/.hg/store/pushlog
  $ log 60
  $ cd tool; echo 3 > file; hg commit -qm three; cd ..
  $ covered
  60

An index that another process holds, or that cannot be written, fails no transaction.

  $ rm tool/.hg/cache/pushlog.sqlite
  $ mkdir tool/.hg/cache/pushlog.sqlite
  $ cd tool; echo 4 > file; hg commit -qm four; hg log -r tip -T '{desc}\n'; cd ..
  four
