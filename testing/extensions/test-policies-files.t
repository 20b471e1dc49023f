Policies about files: their size, their names, and what they are.

  $ . $TESTDIR/policies.sh
  $ as alice staff
  $ registered
  $ hg clone -q ssh://host/server work
  $ cd work
  $ echo one > file
  $ commit one
  $ push
  remote: added 1 changesets with 1 changes to 1 files

A file that is too large stays out, also when a later changeset of the same push removes it: it would be in every clone for ever. What counts is the file, not the name that it was copied from.

  $ registered 'policies = {"file-size": {"max": 1000}}'
  $ head -c 1001 /dev/zero | tr '\0' x > large
  $ head -c 1000 /dev/zero | tr '\0' y > fits
  $ commit 'a large file'
  $ hg rm large
  $ commit 'without it'
  $ push
  remote: - file-size: c20bbc7224fa has large with 1001 bytes, more than 1000 bytes: keep it elsewhere, and take it out of the history (hg histedit, hg commit --amend)
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r 'desc("a large file")' --no-backup
  $ head -c 1000 /dev/zero | tr '\0' y > fits
  $ commit 'a file that just fits'
  $ hg copy fits copy
  $ commit 'its copy, whose record has more bytes'
  $ push
  remote: added 2 changesets with 2 changes to 2 files
  $ echo more >> copy
  $ commit 'too much'
  $ push
  remote: - file-size: 5050364e32e3 has copy with 1005 bytes, more than 1000 bytes: keep it elsewhere, and take it out of the history (hg histedit, hg commit --amend)
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r . --no-backup

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
  remote: - paths: 3d684de1641f has private/keys/one, which is forbidden here (*.exe, private/keys): take it out of the history (hg forget, then hg commit --amend)
  remote: - paths: 3d684de1641f has sub/setup.exe, which is forbidden here (*.exe, private/keys): take it out of the history (hg forget, then hg commit --amend)
  remote: - paths: 3d684de1641f has ääääääääääx, a path of 21 bytes, more than 20: rename it (hg rename, then fold with hg histedit)
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

Symbolic links and subrepositories, also when a later changeset removes them.

  $ registered 'policies = {"no-symlinks": {}, "no-subrepositories": {}}'
  $ ln -s /etc/passwd link
  $ hg init sub
  $ echo x > sub/x
  $ hg -R sub commit -qAm x
  $ echo 'sub = sub' > .hgsub
  $ commit 'links'
  $ hg rm link .hgsub
  $ commit 'without them'
  $ push
  remote: - no-symlinks: 61f6ea5f3822 has link, a symbolic link: replace it by a file (hg commit --amend)
  remote: - no-subrepositories: 61f6ea5f3822 has .hgsub: no subrepositories here; take the file out of the history (hg forget, then hg commit --amend)
  remote: - no-subrepositories: 61f6ea5f3822 has .hgsubstate: no subrepositories here; take the file out of the history (hg forget, then hg commit --amend)
  remote: alice may not push this to team/tool: 3 problems, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r 'desc("links")' --no-backup
  $ rm -rf sub

Names that differ by upper and lower case alone. A directory counts as well, two directories do not.

  $ registered 'policies = {"no-case-collisions": {}}'
  $ echo > FILE
  $ mkdir Fits Sub2 sub2
  $ echo > Fits/a
  $ echo > Sub2/a
  $ echo > sub2/b
  $ commit 'collide'
  $ push
  remote: - no-case-collisions: c703117d0ed6 has both file and FILE, one file on Windows and macOS: rename one of them (hg rename)
  remote: - no-case-collisions: c703117d0ed6 has both Fits/a and fits, one file on Windows and macOS: rename one of them (hg rename)
  remote: alice may not push this to team/tool: 2 problems, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r . --no-backup

To rename a file by case only is fine: in the end there is one.

  $ hg rename file f
  $ hg rename f File
  $ commit 'upper case'
  $ push
  remote: added 1 changesets with 1 changes to 1 files
  $ hg manifest -R ../server -r tip | grep -i '^file'
  File

A merge brings together what was fine on either side.

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
  remote: - no-case-collisions: e501110441a8 has both readme and README, one file on Windows and macOS: rename one of them (hg rename)
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]

The server is whole after all of this.

  $ hg verify -q -R ../server
