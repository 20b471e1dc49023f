Policies and phases: a secret changeset counts when it comes, and when it is shown.

  $ . $TESTDIR/policies.sh
  $ as alice staff
  $ working
  $ echo root > file
  $ commit root
  $ echo hidden > hidden
  $ hg commit -q --secret -Am 'a secret'
  $ hg update -q '.^'
  $ echo open > open
  $ commit 'open'
  $ push
  remote: added 2 changesets with 2 changes to 2 files

hg sends no secret changeset. A bundle can carry a secret changeset, and a person who writes bundles by hand can send it. It may not hide from a policy that way.

  $ hg bundle -q -r 'desc("a secret")' --base 'desc("root")' --config experimental.bundle-phases=yes ../secret.hg
  $ server() { HGRCPATH=$TESTTMP/server.rc hg -R ../server "$@"; }
  $ registered 'policies = {"commit-message": {"pattern": "^Bug"}}'
  $ server unbundle ../secret.hg
  adding changesets
  adding manifests
  adding file changes
  - commit-message: 8ee45a2f7efd has the message "a secret": expected the pattern ^Bug; change it with hg commit --amend or hg histedit
  error: pretxnclose.policies hook failed: write refused
  transaction abort!
  rollback completed
  abort: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  [255]

A second head that is secret does not count, until its phase is moved.

  $ registered 'policies = {"single-head": {}}'
  $ server unbundle -q ../secret.hg
  $ served
  default: root
  default: open
  $ server phase --draft --force -r 'desc("a secret")'
  - single-head: the branch default would have 2 heads (7e0e88112913, 8ee45a2f7efd): pull, then merge or rebase so that one head remains, and push again
  error: pretxnclose.policies hook failed: write refused
  abort: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  [255]
  $ server phase --public -r 'desc("a secret")'
  - single-head: the branch default would have 2 heads (7e0e88112913, 8ee45a2f7efd): pull, then merge or rebase so that one head remains, and push again
  error: pretxnclose.policies hook failed: write refused
  abort: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  [255]
  $ server log -r 'desc("a secret")' -T '{phase} {desc}\n'
  secret a secret

A commit on the server is checked like a push.

  $ server update -q default
  $ registered 'policies = {"no-symlinks": {}}'
  $ ln -s x ../server/x
  $ server commit -Am 'a link' --user alice --date '0 0'
  adding x
  - no-symlinks: e2277d853e91 has x, a symbolic link: replace it by a file (hg commit --amend)
  error: pretxnclose.policies hook failed: write refused
  transaction abort!
  rollback completed
  abort: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  [255]
  $ rm ../server/x

The server is whole after all of this.

  $ hg verify -q -R ../server

An obsolete changeset is no head when it comes. It becomes a head when it is published.

  $ hg update -q -C 'desc("open")'
  $ echo 1 > OPEN
  $ commit 'OPEN beside open'
  $ upper=$(hg log -r . -T '{node}')
  $ hg --config experimental.evolution=all debugobsolete -d '0 0' -u alice --record-parents $upper
  * (glob)
  obsoleted 1 changesets
  $ hg --hidden --config experimental.evolution=all --config experimental.evolution.bundle-obsmarker=yes bundle -q -r $upper --base 'desc("open") and not desc("OPEN")' ../obsolete.hg
  $ registered 'policies = {"no-case-collisions": {}}' '[experimental]' 'evolution = all' '[phases]' 'publish = no'
  $ server unbundle -q ../obsolete.hg
  $ server --hidden log -r $upper -T '{phase} {obsolete} {desc}\n'
  draft obsolete OPEN beside open
  $ server --hidden phase --public -r $upper
  - no-case-collisions: 9ebe76500816 has both open and OPEN, the same file on Windows and macOS: rename one of them (hg rename)
  error: pretxnclose.policies hook failed: write refused
  abort: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  [255]
