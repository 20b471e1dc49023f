Rules hold for the content that a name gives: a user who may not change a branch may not make its name give other content either.

  $ . $TESTDIR/policies.sh
  $ as alice staff,release
  $ drafts() { registered "$@" '[phases]' 'publish = no' '[experimental]' 'evolution = exchange, createmarkers, allowunstable'; }
  $ printf '%s\n' '[experimental]' 'evolution = all' '[phases]' 'publish = no' >> $HGRCPATH
  $ drafts
  $ hg clone -q ssh://host/server work
  $ cd work
  $ mkdir src
  $ echo 1 > src/main
  $ commit root
  $ hg branch -q stable
  $ echo old > src/main
  $ commit 'stale head'
  $ hg update -q 'desc(root)'
  $ hg branch -qf stable
  $ echo new > src/main
  $ commit 'real head'
  $ push -f --new-branch
  remote: added 3 changesets with 3 changes to 1 files (+1 heads)
  $ drafts 'rules = [{"branches": ["stable"], "paths": ["src/**"], "push": ["release"]}]'
  $ gives() { hg log -R $TESTTMP/server -r "$1" -T '{desc}\n'; }
  $ back() { hg --config extensions.strip= strip -q --no-backup -r "$@"; }
  $ as bob staff

A branch with two heads has the content of the newer head. To close the newer head, or to go on from the other, would bring the content of the other back.

  $ hg commit -q --close-branch -m 'close the real head'
  $ push
  remote: - rules: the branch stable would give 3f78fa45307c instead of e16261168552 with another src/main, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ back .
  $ hg update -q -C 'desc("stale head")'
  $ echo 1 > other
  $ commit 'on the stale head'
  $ push
  remote: - rules: the branch stable would give d9c6ae13b63e instead of e16261168552 with another src/main, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ back .
  $ gives stable
  real head

A detour over another branch is refused.

  $ hg update -q -C 'desc("real head")'
  $ hg branch -q detour
  $ echo bad > src/main
  $ commit 'a detour'
  $ hg branch -qf stable
  $ hg commit -q -m 'back on the branch'
  $ push --new-branch
  remote: - rules: the branch stable would give d6900facdbe5 instead of e16261168552 with another src/main, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ back 'branch(detour)'
  $ gives stable
  real head

A bookmark with the name of the branch is refused.

  $ hg debugpushkey ssh://host/server bookmarks stable '' $(hg log -r 0 -T '{node}') 2>&1 | grep rules:
  remote: - rules: the bookmark stable has the name of a branch, where only members of release may push; ask one of them
  $ hg debugpushkey ssh://host/server bookmarks stable $(hg log -r 0 -T '{node}') '' 2>&1 | grep rules:
  remote: - rules: the bookmark stable has the name of a branch, where only members of release may push; ask one of them
  $ gives stable
  real head

A user who drops their own work gives back the content that was there.

  $ hg update -q -C 'desc("real head")'
  $ echo 1 > third
  $ commit 'bob on the real head'
  $ push
  remote: added 1 changesets with 1 changes to 1 files
  $ hg debugobsolete --record-parents $(hg log -r . -T '{node}')
  1 new obsolescence markers
  obsoleted 1 changesets
  $ push
  no changes found
  remote: 1 new obsolescence markers
  remote: obsoleted 1 changesets
  [1]
  $ gives stable
  real head

This is refused where it leaves another head that has other content of the protected files.

  $ as alice staff,release
  $ hg update -q -C 'desc("stale head")'
  $ echo 2 > other
  $ commit 'stale head, later'
  $ push
  remote: added 1 changesets with 1 changes to 1 files
  $ as bob staff
  $ hg update -q -C 'desc("real head")'
  $ echo 2 > third
  $ commit 'bob again'
  $ push
  remote: - rules: the branch stable would give a021d5f310b6 instead of 9d935a3e8de8 with another src/main, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ gives stable
  stale head, later

Raising a phase is refused as well, were there a way to raise it: on the server, bob is checked as well.

  $ server() { HGRCPATH=$TESTTMP/server.rc hg -R $TESTTMP/server "$@"; }
  $ server phase --secret --force -r stable
  - rules: the branch stable would give e16261168552 instead of 9d935a3e8de8 with another src/main, where only members of release may push; ask one of them
  error: pretxnclose.policies hook failed: write refused
  abort: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  [255]
  $ gives stable
  stale head, later

A rule of the whole branch refuses the same changes.

  $ drafts 'rules = [{"branches": ["stable"], "push": ["release"]}]'
  $ server phase --secret --force -r stable
  - rules: 9d935a3e8de8 is on the branch stable, where only members of release may push; ask one of them
  error: pretxnclose.policies hook failed: write refused
  abort: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  [255]
  $ gives stable
  stale head, later

A user who rebases the last changeset on an obsolete changeset of the branch hides the obsolete changeset, and may do so. To show it again is refused.

  $ back 'desc("bob again")'
  $ as alice staff,release
  $ hg update -q -C stable
  $ echo 9 > other
  $ commit 'to be replaced'
  $ push
  remote: added 1 changesets with 1 changes to 1 files
  $ old=$(hg log -r . -T '{node}')
  $ as bob staff
  $ hg branch -q feature
  $ echo 1 > feature
  $ commit 'bob on what is replaced'
  $ push --new-branch
  remote: added 1 changesets with 1 changes to 1 files
  $ as alice staff,release
  $ hg update -q -C $old
  $ hg commit -q --amend -m 'replacement'
  1 new orphan changesets
  $ push -f -r 'desc(replacement)'
  remote: added 1 changesets with 0 changes to 0 files (+1 heads)
  remote: 1 new obsolescence markers
  remote: obsoleted 1 changesets
  remote: 1 new orphan changesets
  $ as bob staff
  $ hg rebase -q --keepbranches -r feature -d stable
  $ push
  remote: added 1 changesets with 0 changes to 1 files
  remote: 1 new obsolescence markers
  remote: obsoleted 1 changesets
  $ server log -G -T '{branch} {desc}' -r 'last(all(), 3)' | grep -v '^ *|'
  o  feature bob on what is replaced
  o  stable replacement
  o  stable stale head, later
  ~
  $ hg update -q --hidden $old
  updated to hidden changeset 7f6a20dd7da9
  (hidden revision '7f6a20dd7da9' was rewritten as: 77765cb76ce8)
  $ hg branch -q feature-2
  $ echo 2 > feature
  $ commit 'on what is hidden'
  1 new orphan changesets
  $ push -f --new-branch
  remote: - rules: 7f6a20dd7da9 is on the branch stable, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ back .
  $ hg update -q -C 'desc(replacement)'

The policy single-head lets a branch with several heads lose the older heads, and not the newest head.

  $ drafts 'policies = {"single-head": {}}'
  $ hg commit -q --close-branch -m 'close the newest head'
  $ push
  remote: - single-head: the branch stable would go back to its other head e16261168552, because 77765cb76ce8 is closed or gone: merge the two heads, or close the other head
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ back .
  $ hg update -q -C 'desc("real head")'
  $ hg commit -q --close-branch -m 'close the older head'
  $ push
  remote: added 1 changesets with 0 changes to 0 files
  $ gives stable
  replacement
  $ hg verify -q -R ../server
