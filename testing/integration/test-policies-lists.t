Each clone is made from the lists of files that clients write. An untrue list is refused in every repository, with and without policies.

  $ . $TESTDIR/policies.sh
  $ hostile
  $ echo 1 > file
  $ commit root
  $ push
  remote: added 1 changesets with 1 changes to 1 files

A file that no store has would end every clone. A file that is not listed would be in no clone, and its changeset in no mirror.

  $ hg forgelist new new ghost
  $ push --config hostile.sent=new
  remote: - file-lists: fb70d00de142 lists ghost, which it neither has nor removes: write the changeset again with hg commit --amend, or ask an operator to bring the history in
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r tip --no-backup
  $ hg forgelist new file
  $ push --config hostile.sent=new
  remote: - file-lists: 96e572e7776b changes new and does not list it: write the changeset again with hg commit --amend, or ask an operator to bring the history in
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r tip --no-backup

A revision that is said to belong to an older changeset would not be sent to clients that have that changeset.

  $ hg forgelist new new
  $ push --config hostile.link=0
  remote: - file-lists: bb31f1532b9f has a revision of new that belongs to another changeset: write the changeset again with hg commit --amend, or ask an operator to bring the history in
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ push
  remote: added 1 changesets with 1 changes to 1 files
  $ hg -R $TESTTMP/server verify -q

A text without its hash would end every clone, and a text with malformed words about a copy every update.

  $ hg update -q -C tip
  $ echo 3 > third
  $ commit third
  $ push --config hostile.wrong=file
  remote: - file-lists: a9a76323e7c8 has a revision of third that cannot be read back: write the changeset again with hg commit --amend, or ask an operator to bring the history in
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ push --config hostile.wrong=manifest
  remote: - file-lists: a9a76323e7c8 has a revision of its manifest that cannot be read back: write the changeset again with hg commit --amend, or ask an operator to bring the history in
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ push
  remote: added 1 changesets with 1 changes to 1 files
  $ hg forgefile copied '\1\ncopy: ghost\ncopyrev: 1111111111111111111111111111111111111111\n\1\n'
  $ push
  remote: - file-lists: 0020b0aa34a0 has a revision of copied that cannot be read back: write the changeset again with hg commit --amend, or ask an operator to bring the history in
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r tip --no-backup

The same file in two sibling changesets is a single revision, which belongs to the first; a merge has it from a parent.

  $ hg update -q -C tip
  $ echo 2 > file
  $ commit one
  $ hg update -q -r .^
  $ echo 2 > file
  $ commit two -d '1 0'
  $ push -f
  remote: added 2 changesets with 1 changes to 1 files (+1 heads)
  $ hg merge -q -r 'desc(one)'
  $ commit merged
  $ chmod +x file
  $ commit 'a flag'
  $ hg copy -q file copied
  $ hg remove new
  $ commit 'a copy and a removal'
  $ push
  remote: added 3 changesets with 1 changes to 1 files (-1 heads)
  $ hg clone -q ssh://host/server $TESTTMP/clone
  $ hg -R $TESTTMP/clone verify -q
