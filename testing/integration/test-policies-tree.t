A closed tree: nothing lands for a while, and all users read why.

  $ . $TESTDIR/policies.sh
  $ as alice staff,release
  $ working
  $ branched
  remote: added 2 changesets with 3 changes to 3 files

A closed tree says why. No user pushes, not even a bookmark.

  $ registered 'policies = {"closed-tree": {"reason": "release 2.0 is built until Friday"}}'
  $ hg update -q default
  $ echo 2 > src/main
  $ commit 'work'
  $ push
  remote: - closed-tree: the tree is closed: release 2.0 is built until Friday; wait until it opens
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg bookmark -r 'desc(root)' here
  $ push -B here -r 'desc(root)'
  no changes found
  remote: - closed-tree: the tree is closed: release 2.0 is built until Friday; wait until it opens
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg debugpushkey ssh://host/server bookmarks here '' $(hg log -r 'desc(root)' -T '{node}')
  remote: - closed-tree: the tree is closed: release 2.0 is built until Friday; wait until it opens
  remote: error: pretxnclose.policies hook failed: write refused
  remote: abort: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: unexpected response: empty string
  [255]

Groups can be excepted. Their members confirm that they know.

  $ registered 'policies = {"closed-tree": {"reason": "release 2.0 is built", "except": ["release"]}}'
  $ as bob staff
  $ push --pushvars CLOSED_TREE=yes
  remote: - closed-tree: the tree is closed: release 2.0 is built; wait, or ask a member of release to push
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ as alice staff,release
  $ push
  remote: - closed-tree: the tree is closed: release 2.0 is built; you may push all the same with hg push --pushvars CLOSED_TREE=yes
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ push --pushvars CLOSED_TREE=yes
  remote: added 1 changesets with 1 changes to 1 files (+1 heads)
  $ hg bookmarks -R ../server
  no bookmarks set

A branch may be closed while the others are open.

  $ registered 'policies = {"closed-tree": {"reason": "frozen", "branches": ["stable", "rel-*"]}}'
  $ echo 3 > src/main
  $ commit 'more work'
  $ push
  remote: added 1 changesets with 1 changes to 1 files
  $ hg update -q stable
  $ echo 2 > version
  $ commit 'version 2'
  $ push
  remote: - closed-tree: the branch stable is closed: frozen; wait until it opens
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]

The server is whole after all of this.

  $ hg verify -q -R ../server
