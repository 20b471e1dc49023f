Rules say who may push to some branches and paths.

  $ . $TESTDIR/policies.sh
  $ as alice staff,release
  $ working
  $ branched
  remote: added 2 changesets with 3 changes to 3 files

Rules: only some groups may push to a branch.

  $ registered 'rules = [{"branches": ["stable"], "push": ["release"]}]'
  $ hg update -q stable
  $ echo 2 > version
  $ commit 'version 2'
  $ as bob staff
  $ push
  remote: - rules: 88328d13a884 is on the branch stable, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ as alice staff,release
  $ push
  remote: added 1 changesets with 1 changes to 1 files

Only some groups may change some paths, in any way: a removal and a rename count as well.

  $ registered 'rules = [{"paths": ["secrets"], "push": ["security"]}]'
  $ as bob staff
  $ hg update -q default
  $ hg rm secrets/key
  $ commit 'no key'
  $ push
  remote: - rules: e62f0d35f073 changes secrets/key, where only members of security may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r . --no-backup
  $ echo other > src/other
  $ commit 'src is no secret'
  $ push
  remote: added 1 changesets with 1 changes to 1 files (+1 heads)

A bookmark on a branch is a name for the content of the branch: to create, move or delete it needs the right to push there. A bookmark with the name of such a branch would be taken for the branch.

  $ registered 'rules = [{"branches": ["stable"], "push": ["release"]}]'
  $ as alice staff,release
  $ hg bookmark -q -r stable^ release
  $ push -q -B release
  [1]
  $ as bob staff
  $ hg bookmark -qf -r stable release
  $ push -B release
  no changes found
  remote: - rules: the bookmark release is on the branch stable, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg bookmark -qf -r default release
  $ push -f -B release
  no changes found
  remote: - rules: the bookmark release is on the branch stable, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg bookmark -d release
  $ push -B release
  no changes found
  remote: - rules: the bookmark release is on the branch stable, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg debugpushkey ssh://host/server bookmarks mine '' $(hg log -r stable -T '{node}') 2>&1 | grep rules:
  remote: - rules: the bookmark mine is on the branch stable, where only members of release may push; ask one of them
  $ hg debugpushkey ssh://host/server bookmarks stable '' $(hg log -r default -T '{node}') 2>&1 | grep rules:
  remote: - rules: the bookmark stable has the name of a branch, where only members of release may push; ask one of them
  $ hg bookmark -q -r default feature
  $ push -q -B feature
  [1]
  $ as alice staff,release
  $ push -q -B release
  [1]
  $ hg bookmarks -R ../server -T '{bookmark}\n'
  feature
  $ hg bookmark -q -d feature
  $ as bob staff

With a branch and a path, a rule is about the content of the branch: a merge brings all of it.

  $ registered 'rules = [{"branches": ["stable"], "paths": ["src/**"], "push": ["release"]}]'
  $ hg update -q stable
  $ hg merge -q default
  $ commit 'default into stable'
  $ push
  remote: - rules: 371bf4fc09ec changes src/other on the branch stable, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r . --no-backup
  $ hg update -qC stable
  $ echo 3 > version
  $ commit 'version 3'
  $ push
  remote: added 1 changesets with 1 changes to 1 files

A branch that is begun again elsewhere, or goes on from before its head, is compared with its content before.

  $ hg update -q -C 'desc("version 2")'
  $ mkdir -p src
  $ echo other > src/main
  $ commit 'older'
  $ push -f
  remote: - rules: e7f7bcdaf6c6 replaces the head of the branch stable by another src/main, where only members of release may push; ask one of them
  remote: - rules: e7f7bcdaf6c6 changes src/main on the branch stable, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: 2 problems, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r . --no-backup
  $ registered 'rules = [{"branches": ["stable"], "paths": ["version"], "push": ["release"]}]'
  $ hg update -q -C 'desc(root)'
  $ hg branch -qf stable
  $ echo new > new
  $ commit 'stable again'
  $ again=$(hg log -r . -T '{node}')
  $ hg update -q -C 'desc("version 3")'
  $ hg commit -q --close-branch -m 'no more'
  $ push -f
  remote: - rules: ba3e030af1d0 replaces the head of the branch stable by another version, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r $again -r . --no-backup
  $ hg update -q -C stable

Every rule has to be kept. A rule without groups lets no user push.

  $ registered 'rules = [{"branches": ["stable"], "push": ["release"]}, {"paths": ["version"], "push": []}]'
  $ as alice staff,release
  $ echo 4 > version
  $ commit 'version 4'
  $ push
  remote: - rules: 8f8d8c13da7a changes version, where nobody may push; ask an operator
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]

On a repository that keeps drafts, publishing is a change as well, and so is taking a changeset out of sight.

  $ registered '[phases]' 'publish = no'
  $ push
  remote: added 1 changesets with 1 changes to 1 files
  $ registered 'rules = [{"branches": ["stable"], "push": ["release"]}]' '[phases]' 'publish = no'
  $ as bob staff
  $ hg phase --public -r .
  $ push
  no changes found
  remote: - rules: 8f8d8c13da7a is on the branch stable, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ registered 'rules = [{"branches": ["stable"], "push": ["release"]}]' '[experimental]' 'evolution = exchange, createmarkers' '[phases]' 'publish = no'
  $ tip=$(hg log -r . -T '{node}')
  $ hg --config experimental.evolution=all debugpushkey ssh://host/server phases $tip 1 0
  remote: - rules: 8f8d8c13da7a is on the branch stable, where only members of release may push; ask one of them
  remote: error: pretxnclose.policies hook failed: write refused
  remote: abort: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: unexpected response: empty string
  [255]
  $ HGRCPATH=$TESTTMP/server.rc hg -R ../server --config experimental.evolution=all debugobsolete --record-parents $tip
  no username found, using 'root@localhost' instead
  - rules: 8f8d8c13da7a is on the branch stable, where only members of release may push; ask one of them
  error: pretxnclose.policies hook failed: write refused
  transaction abort!
  rollback completed
  abort: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  [255]
  $ hg log -R ../server -r $tip -T '{phase}\n'
  draft

The server is whole after all of this.

  $ hg verify -q -R ../server
