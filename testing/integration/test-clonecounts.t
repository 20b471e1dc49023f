The extension `clonecounts` counts clones and pulls by the source of their changesets.

  $ mkdir counters
  $ cat > server.rc <<EOF
  > [extensions]
  > clonebundles =
  > clonecounts = $TOP/hgext/clonecounts.py
  > [hgfleet]
  > counters = $TESTTMP/counters
  > EOF
  $ cat > ssh <<EOF
  > #!/bin/sh
  > HGRCPATH=$TESTTMP/server.rc exec hg -R $TESTTMP/server serve --stdio
  > EOF
  $ chmod +x ssh
  $ cat >> $HGRCPATH <<EOF
  > [ui]
  > ssh = $TESTTMP/ssh;:
  > EOF
  $ counts() { grep -v bytes counters/clones | sort; }
  $ hg init server
  $ echo one > server/file
  $ hg -R server commit -q -A -m one

A clone that the server computes, with its bytes.

  $ hg clone -q ssh://host/server clone
  $ counts
  clone live 1
  $ grep -c '^clone live bytes [1-9][0-9][0-9]' counters/clones
  1

A pull counts; a pull that finds nothing does not.

  $ echo two > server/file
  $ hg -R server commit -q -m two
  $ hg -R clone pull -q
  $ hg -R clone pull -q
  $ counts
  clone live 1
  pull live 1

A clone from a clone bundle: changesets that are newer than the bundle are a pull.

  $ mkdir server/.hg/bundle-cache
  $ hg -R server bundle -q -r 0 --base null -t zstd-v2 server/.hg/bundle-cache/b.hg
  $ echo "peer-bundle-cache://b.hg BUNDLESPEC=zstd-v2" > server/.hg/clonebundles.manifest
  $ hg clone -q ssh://host/server from-bundle
  $ counts
  clone clone-bundle 1
  clone live 1
  pull live 2

A stream is a clone.

  $ rm server/.hg/clonebundles.manifest
  $ hg clone -q --stream ssh://host/server streamed
  $ counts
  clone clone-bundle 1
  clone live 2
  pull live 2

A request that core refuses counts for nothing, and neither does a push.

  $ hg -R clone pull -q -r 123456789012 2>&1 | grep -c unknown
  1
  $ hg -R clone update -q -C
  $ echo three > clone/file
  $ hg -R clone commit -q -m three
  $ hg -R clone push -q
  $ counts
  clone clone-bundle 1
  clone live 2
  pull live 2

The counts are readable for every user of the host. A missing folder fails no clone.

  $ stat -c %a counters/clones
  644
  $ rm -r counters
  $ hg clone -q ssh://host/server other
  $ hg -R other log -r tip -T '{desc}\n'
  three
