Policies look at changesets that appear: a changeset may be hidden when it comes, and be shown by a later push.

  $ . $TESTDIR/policies.sh
  $ as alice staff
  $ draft() { registered "$@" '[phases]' 'publish = no' '[experimental]' 'evolution = all'; }
  $ draft
  $ hg clone -q ssh://host/server work
  $ cd work
  $ server() { HGRCPATH=$TESTTMP/server.rc hg -R $TESTTMP/server "$@"; }
  $ node() { hg log -r "$1" -T '{node}'; }
  $ echo root > file
  $ commit root
  $ echo readme > README
  $ commit readme
  $ push
  remote: added 2 changesets with 2 changes to 2 files

A marker may come before its changeset does. The changeset is obsolete then, and hidden from the beginning.

  $ hide() { server debugobsolete -u mallory -d '0 0' $(node "$1"); }
  $ echo 1 > readme
  $ commit 'readme beside README'
  $ hide .
  1 new obsolescence markers
  $ draft 'policies = {"no-case-collisions": {}}'
  $ push
  remote: added 1 changesets with 1 changes to 1 files

It is shown as soon as it has a child. The push of the child brings the collision into sight, with any content of the child.

  $ echo 2 > file
  $ commit 'a child'
  $ push
  remote: - no-case-collisions: 0ceaadda0ee3 has both readme and README, the same file on Windows and macOS: rename one of them (hg rename)
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ back() { hg strip -q --no-backup -r "$@"; }
  $ back .

A bookmark would show it too, but the server takes no bookmark of a hidden changeset.

  $ hg debugpushkey ssh://host/server bookmarks seen '' $(node .)
  False
  [1]
  $ server bookmarks
  no bookmarks set

A hidden child does not stand for its parent either, which is visible.

  $ hg update -q -C 'desc(root)'
  $ echo 1 > FILE
  $ commit 'FILE beside file'
  $ echo 3 > other
  $ commit 'hidden child'
  $ hide .
  1 new obsolescence markers
  $ push -f
  remote: - no-case-collisions: 761b5e384bcb has both file and FILE, the same file on Windows and macOS: rename one of them (hg rename)
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ back '.^'

A tag that a hidden changeset sets is compared with the branches of the day on which it is shown.

  $ hg update -q -C 'desc(root)'
  $ printf '%s v1\n' $(node .) > .hgtags
  $ commit 'v1'
  $ hide .
  1 new obsolescence markers
  $ draft
  $ push -f
  remote: added 1 changesets with 1 changes to 2 files (+1 heads)
  $ hg update -q -C 'desc(root)'
  $ hg branch -q v1
  $ commit 'a branch'
  $ push -f --new-branch
  remote: added 1 changesets with 0 changes to 2 files (+1 heads)
  $ hg update -q -C 'desc("re:^v1$")'
  $ echo 4 > file
  $ commit 'a child of v1'
  $ push -f
  remote: - names: d43036098528 sets the tag v1, which has the name of a branch: choose another name (hg strip the tag's changeset, then hg tag)
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg log -R ../server -r v1 -T '{desc}\n'
  a branch
  $ back .

Policies about the content of a changeset look at each changeset when it comes, hidden or not.

  $ hg update -q -C 'desc(root)'
  $ dd if=/dev/zero of=large bs=1024 count=2 2> /dev/null
  $ ln -s large link
  $ echo x = x > .hgsub
  $ echo bad > bad.exe
  $ mkdir x; echo bad > 'x/..\..\a'
  $ hg add -q large link bad.exe 'x/..\..\a'
  $ hg commit -q -m 'wrong' -u nobody
  $ hide .
  1 new obsolescence markers
  $ draft 'policies = {"commit-message": {"pattern": "^Bug"}, "author": {"pattern": "@"}, "file-size": {"max": 1024}, "paths": {"forbidden": ["*.exe"]}, "no-symlinks": {}}'
  $ push -f
  remote: - commit-message: 3831b74398a7 has the message "wrong": expected the pattern ^Bug; change it with hg commit --amend or hg histedit
  remote: - author: 3831b74398a7 has the author "nobody": expected the pattern @; set ui.username and use hg commit --amend --user
  remote: - file-size: 3831b74398a7 has large with 2 KiB, more than 1 KiB: keep it elsewhere, and take it out of the history (hg histedit, hg commit --amend)
  remote: - paths: 3831b74398a7 has bad.exe, which is forbidden here (*.exe): take it out of the history (hg forget, then hg commit --amend)
  remote: - no-symlinks: 3831b74398a7 has link, a symbolic link: replace it by a file (hg commit --amend)
  remote: - names: 3831b74398a7 has x/..\..\a, a path that leaves the working copy on Windows: take it out of the history (hg rename or hg forget, then hg commit --amend)
  remote: alice may not push this to team/tool: 6 problems, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg verify -q -R ../server
