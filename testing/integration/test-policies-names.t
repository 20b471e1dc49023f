Policies about the names of files.

  $ . $TESTDIR/policies.sh
  $ as alice staff
  $ working
  $ echo one > file
  $ commit one
  $ push
  remote: added 1 changesets with 1 changes to 1 files

Names: their length in bytes, and patterns. A pattern without a slash is compared with each segment. A bad name that is there already may be removed.

  $ registered 'policies = {"paths": {"max-length": 20, "forbidden": ["*.exe", "private/keys"]}}'
  $ mkdir -p private/keys sub
  $ echo > private/keys/one
  $ echo > private/lock
  $ echo > sub/setup.exe
  $ echo > setup.exe.txt
  $ echo > ääääääääääx
  $ echo > ääääääääää
  $ commit names
  $ push
  remote: - paths: adf03a7929c1 has private/keys/one, which is forbidden here (*.exe, private/keys): take it out of the history (hg forget, then hg commit --amend)
  remote: - paths: adf03a7929c1 has sub/setup.exe, which is forbidden here (*.exe, private/keys): take it out of the history (hg forget, then hg commit --amend)
  remote: - paths: adf03a7929c1 has ääääääääääx, a path of 21 bytes, more than 20: rename it (hg rename, then fold with hg histedit)
  remote: alice may not push this to team/tool: 3 problems, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ registered
  $ push
  remote: added 1 changesets with 6 changes to 6 files
  $ registered 'policies = {"paths": {"max-length": 20, "forbidden": ["*.exe", "private/keys"]}}'
  $ hg rm sub/setup.exe
  $ commit 'a bad name less'
  $ push
  remote: added 1 changesets with 0 changes to 0 files

Names that differ only by upper and lower case. A directory counts as well, two directories do not.

  $ registered 'policies = {"no-case-collisions": {}}'
  $ echo > FILE
  $ mkdir Fits Sub2 sub2
  $ echo > fits
  $ echo > Fits/a
  $ echo > Sub2/a
  $ echo > sub2/b
  $ commit 'collide'
  $ push
  remote: - no-case-collisions: ee5054ee6cde has both file and FILE, the same file on Windows and macOS: rename one of them (hg rename)
  remote: - no-case-collisions: ee5054ee6cde has both fits and Fits/a, the same file on Windows and macOS: rename one of them (hg rename)
  remote: alice may not push this to team/tool: 2 problems, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r . --no-backup

To rename a file by case only is fine: in the end there is a single file.

  $ hg rename file f
  $ hg rename f File
  $ commit 'upper case'
  $ push
  remote: added 1 changesets with 1 changes to 1 files
  $ hg manifest -R ../server -r tip | grep -i '^file'
  File

A merge brings names together that were fine on either side.

  $ echo > readme
  $ commit 'readme'
  $ hg update -q '.^'
  $ echo > README
  $ commit 'README'
  $ push -f
  remote: added 2 changesets with 2 changes to 2 files (+1 heads)
  $ hg merge -q
  $ commit 'merged'
  $ push
  remote: - no-case-collisions: 84d062347921 has both readme and README, the same file on Windows and macOS: rename one of them (hg rename)
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]

The server is whole after all of this.

  $ hg verify -q -R ../server
