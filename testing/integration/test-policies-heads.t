Policies about the shape of the history: heads and merges.

  $ . $TESTDIR/policies.sh
  $ as alice staff
  $ working 'policies = {"single-head": {}}'
  $ echo root > file
  $ commit root
  $ push
  remote: added 1 changesets with 1 changes to 1 files

A second head of the branch is refused, also with --force.

  $ echo a > a
  $ commit a
  $ push
  remote: added 1 changesets with 1 changes to 1 files
  $ hg update -q 'desc(root)'
  $ echo b > b
  $ commit b
  $ push -f
  remote: - single-head: the branch default would have 2 heads (80ec2f90344a, ce9df444811f): pull, then merge or rebase so that one head remains, and push again
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]

Two heads within a push are fine if the push ends with a single head, whether by a merge or by closing a head.

  $ hg merge -q 'desc(a)'
  $ commit 'merge a and b'
  $ push
  remote: added 2 changesets with 1 changes to 1 files
  $ hg update -q 'desc(root)'
  $ echo c > c
  $ commit c
  $ hg commit -q --close-branch -m 'no more of c'
  $ push -f
  remote: added 2 changesets with 1 changes to 1 files
  $ served
  default: root
  default: a
  default: b
  default: merge a and b
  default: c
  default: no more of c (closes)

A head that replaces the former head without descending from it is refused too, whether the former head is closed or not.

  $ hg update -q -C 'desc(root)'
  $ echo again > again
  $ commit 'begun again'
  $ again=$(hg log -r . -T '{node}')
  $ hg update -q -C 'desc("merge a and b")'
  $ hg commit -q --close-branch -m 'closed'
  $ push -f
  remote: - single-head: 8e7d18e11486 replaces the head of the branch default without descending from it: pull, then rebase onto that head, and push again
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r $again -r . --no-backup

Each branch may have a head; if the policy names branches, only those branches are counted.

  $ hg update -q 'desc("merge a and b")'
  $ hg branch -q stable
  $ echo s > s
  $ commit 'stable'
  $ push --new-branch
  remote: added 1 changesets with 1 changes to 1 files
  $ hg update -q 'desc("merge a and b")'
  $ hg branch -qf stable
  $ echo t > t
  $ commit 'stable too'
  $ push -f
  remote: - single-head: the branch stable would have 2 heads (6ab5285bc9d3, 49b2545b6ebd): pull, then merge or rebase so that one head remains, and push again
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ registered 'policies = {"single-head": {"branches": ["default", "rel*"]}}'
  $ push -f
  remote: added 1 changesets with 1 changes to 1 files (+1 heads)

A branch that has two heads already may be worked on and merged; it may not get a third head.

  $ registered 'policies = {"single-head": {}}'
  $ echo t2 > t
  $ commit 'stable too, again'
  $ push
  remote: added 1 changesets with 1 changes to 1 files
  $ hg update -q 'desc("merge a and b")'
  $ hg branch -qf stable
  $ echo u > u
  $ commit 'stable, a third time'
  $ push -f
  remote: - single-head: the branch stable would have 3 heads (6ab5285bc9d3, de27c2b90610, 799a57e90398): pull, then merge or rebase so that one head remains, and push again
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r . --no-backup
  $ hg update -q stable
  $ hg merge -q
  $ commit 'stable again one'
  $ push
  remote: added 1 changesets with 0 changes to 0 files (-1 heads)

A protected branch has no merges: its changesets are rebased. Other branches may have merges.

  $ registered 'policies = {"no-merges": {"branches": ["default"]}}'
  $ hg update -q 'desc("merge a and b")'
  $ echo d > d
  $ commit d
  $ hg update -q '.^'
  $ echo e > e
  $ commit e
  $ hg merge -q 'desc("re:^d$")'
  $ commit 'merge d and e'
  $ push
  remote: - no-merges: c281bb31af25 is a merge on the branch default: rebase instead (hg rebase)
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r . --no-backup
  $ hg rebase -q -s 'desc("re:^e$")' -d 'desc("re:^d$")'
  $ push
  remote: added 2 changesets with 2 changes to 2 files (+1 heads)
  $ hg update -q stable
  $ hg merge -q default
  $ commit 'default into stable'
  $ push
  remote: added 1 changesets with 0 changes to 0 files (-1 heads)

The heads of a long history are counted without reading it: the heads before the push are known when it begins.

  $ cat > $TESTTMP/counting.py <<EOF
  > """Tell how many changesets the session has read when the transaction is about to close."""
  > from mercurial import changelog, extensions
  > read = set()
  > def counted(original, log, rev):
  >     read.add(rev)
  >     return original(log, rev)
  > def tell(ui, **_kwargs):
  >     ui.warn(b"%s read\\n" % (b"few" if len(read) < 30 else b"%d" % len(read)))
  > def extsetup(ui):
  >     extensions.wrapfunction(changelog.changelog, "changelogrevision", counted)
  > def reposetup(ui, repo):
  >     repo.ui.setconfig(b"hooks", b"priority.pretxnclose.counting", b"-10")
  >     repo.ui.setconfig(b"hooks", b"pretxnclose.counting", tell)
  > EOF
  $ printf '[extensions]\ncounting = %s\n' $TESTTMP/counting.py >> $TESTTMP/server.rc
  $ hg verify -q -R ../server
  $ rm -rf ../server
  $ hg init ../server
  $ registered
  $ hg init ../long
  $ cd ../long
  $ hg debugbuilddag '+400<200+2'
  $ hg push -qf ssh://host/server
  $ registered 'policies = {"single-head": {}}'
  $ hg update -q 'head() and not tip'
  $ echo more > more
  $ commit 'two heads as before'
  $ push ssh://host/server
  remote: few read
  remote: added 1 changesets with 1 changes to 1 files
  $ hg update -q 100
  $ echo third > third
  $ commit 'a third head'
  $ push -f ssh://host/server 2>&1 | sed 's/([0-9a-f, ]*)/(...)/'
  remote: - single-head: the branch default would have 3 heads (...): pull, then merge or rebase so that one head remains, and push again
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote

The server is whole after all of this.

  $ hg verify -q -R ../server
