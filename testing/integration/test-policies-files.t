Policies about files: their size and their kind.

  $ . $TESTDIR/policies.sh
  $ as alice staff
  $ working
  $ echo one > file
  $ commit one
  $ push
  remote: added 1 changesets with 1 changes to 1 files

A file that is too large stays out, also when a later changeset of the same push removes it: it would be in every clone for ever. The size of the file counts, and not the name that it was copied from.

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
  remote: - no-symlinks: eb03b885bff6 has link, a symbolic link: replace it by a file (hg commit --amend)
  remote: - no-subrepositories: eb03b885bff6 has .hgsub: no subrepositories here; take the file out of the history (hg forget, then hg commit --amend)
  remote: - no-subrepositories: eb03b885bff6 has .hgsubstate: no subrepositories here; take the file out of the history (hg forget, then hg commit --amend)
  remote: alice may not push this to team/tool: 3 problems, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r 'desc("links")' --no-backup
  $ rm -rf sub

The server is whole after all of this.

  $ hg verify -q -R ../server
