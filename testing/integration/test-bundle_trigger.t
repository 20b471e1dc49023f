The extension `bundle_trigger` notes for the bundle jobs which repositories were pushed to.

  $ . $TESTDIR/pushed.sh
  $ mkdir spool
  $ cat > server.rc <<EOF
  > [extensions]
  > access = $TOP/hgext/access.py
  > bundle_trigger = $TOP/hgext/bundle_trigger.py
  > [hgfleet]
  > path = team/tool
  > read = public
  > push = staff
  > pushed = $TESTTMP/spool
  > [phases]
  > publish = no
  > EOF
  $ prepared
  $ ln -s nowhere ../tool/.hg/clonebundles.manifest

A push is noted. So is a second push, and a push that only makes changesets public.

  $ push
  $ ls ../spool
  team+tool
  $ echo 2 > file
  $ hg commit -qm two
  $ push
  $ ls ../spool
  team+tool
  $ rm ../spool/*
  $ hg phase --public .
  $ push
  [1]
  $ ls ../spool
  team+tool
  $ rm ../spool/*

A push that is refused is not; a bookmark changes nothing that a bundle holds.

  $ echo 3 > file
  $ hg commit -qm three
  $ WHO=mallory GROUP=guests push | grep -o 'may not push'
  may not push
  $ hg bookmark -r 0 here
  $ push -r 0 -B here
  [1]
  $ ls ../spool

A repository without clone bundles, such as a user's, has pull bundles when it is large enough.

  $ rm ../tool/.hg/clonebundles.manifest
  $ ln -s nowhere ../tool/.hg/pullbundles
  $ push
  $ ls ../spool
  $ cat >> ../server.rc <<EOF
  > [hgfleet]
  > pushed-changesets = 4
  > EOF
  $ echo 4 > file
  $ hg commit -qm four
  $ push
  $ ls ../spool
  team+tool
  $ rm ../spool/* ../tool/.hg/pullbundles
  $ ln -s nowhere ../tool/.hg/clonebundles.manifest

A repository whose bundles begin at a size is noted by the push that reaches it, and once it has bundles.

  $ rm ../tool/.hg/clonebundles.manifest
  $ ln -s $TESTTMP/manifest ../tool/.hg/clonebundles.manifest
  $ cat >> ../tool/.hg/hgrc <<EOF
  > [hgfleet]
  > bundles-from = 40000
  > EOF
  $ echo small > file
  $ hg commit -qm small
  $ push
  $ ls ../spool
  $ python3 -c 'import random; print(random.Random(7).randbytes(50000).hex())' > large
  $ hg commit -qAm large
  $ push
  $ ls ../spool
  team+tool
  $ rm ../spool/*
  $ sed -i 's/^bundles-from = .*/bundles-from = 1 GB/' ../tool/.hg/hgrc
  $ echo smaller > file
  $ hg commit -qm smaller
  $ push
  $ ls ../spool
  $ touch ../manifest
  $ echo published > file
  $ hg commit -qm published
  $ push
  $ ls ../spool
  team+tool
  $ rm ../spool/* ../manifest ../tool/.hg/hgrc ../tool/.hg/clonebundles.manifest
  $ ln -s nowhere ../tool/.hg/clonebundles.manifest

A repository without bundles is not noted.

  $ rm ../tool/.hg/clonebundles.manifest
  $ echo 5 > file
  $ hg commit -qm five
  $ push
  $ ls ../spool
  $ ln -s nowhere ../tool/.hg/clonebundles.manifest

Where the spool cannot be written, or is not there, a push goes on.

  $ ln -s /dev/null ../spool/team+tool
  $ echo 6 > file
  $ hg commit -qm six
  $ push
  $ rm -r ../spool
  $ echo 7 > file
  $ hg commit -qm seven
  $ push
  $ hg -R ../tool log -r tip -T '{desc}\n'
  seven
