Rules say who may move tags. hg looks for a tag before it looks for a branch.

  $ . $TESTDIR/policies.sh
  $ as alice staff,release
  $ working
  $ echo 1 > file
  $ commit root
  $ hg branch -q stable
  $ echo 2 > file
  $ commit stable
  $ hg update -q default
  $ push -q --new-branch
  $ tags() { printf "$@" >> .hgtags; commit 'a tag'; push; }
  $ other=$(hg log -r default -T '{node}')

A tag with the name of a branch would make that name another changeset, for each client that updates to it.

  $ tags "$other stable\n"
  remote: - names: 1ade2e2411f2 sets the tag stable, which has the name of a branch: choose another name (hg strip the tag's changeset, then hg tag)
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg log -r stable -T '{desc}\n'
  root
  $ hg strip -q -r . --no-backup
  $ tags "$other v1\n"
  remote: added 1 changesets with 1 changes to 1 files (+1 heads)
  $ hg bookmark -q -r default mark
  $ push -q -B mark
  [1]
  $ tags "$other mark\n"
  remote: - names: 9446b3d90bab sets the tag mark, which has the name of a bookmark: choose another name (hg strip the tag's changeset, then hg tag)
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r . --no-backup
  $ tags "$other tip\n"
  remote: - names: 80b69d0d4587 sets the tag tip, which has a name that means something else to hg: choose another name (hg strip the tag's changeset, then hg tag)
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r . --no-backup

Only some groups may set, move or remove some tags.

  $ registered 'rules = [{"tags": ["v*"], "push": ["release"]}]'
  $ as bob staff
  $ tags "$other v2\n"
  remote: - rules: 54749b71a203 changes the tag v2, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r . --no-backup
  $ tags "$(hg log -r 0 -T '{node}') v1\n"
  remote: - rules: 574d8ecb1881 changes the tag v1, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r . --no-backup
  $ tags "0000000000000000000000000000000000000000 v1\n"
  remote: - rules: 74c93889aa8f changes the tag v1, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r . --no-backup
  $ hg forget .hgtags; rm .hgtags
  $ commit 'no tags'
  $ push
  remote: - rules: bec9407ae1cc changes the tag v1, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r . --no-backup
  $ hg update -q -C .
  $ tags "$other other\n"
  remote: added 1 changesets with 1 changes to 1 files

Nor may others give the name of such a tag to a bookmark or branch.

  $ hg bookmark -q -r default v3
  $ push -B v3
  no changes found
  remote: - rules: the bookmark v3 has the name of a tag, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg bookmark -q -d v3
  $ hg branch -q v3
  $ echo 3 > file
  $ commit 'a branch'
  $ push --new-branch
  remote: - rules: the branch v3 has the name of a tag, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r . --no-backup
  $ hg update -q -C default
  $ as alice staff,release
  $ tags "$other v2\n"
  remote: added 1 changesets with 1 changes to 1 files

A merge brings the tags of its parents, and moves none.

  $ hg update -q -C -r 'desc(root)'
  $ echo m > m
  $ commit 'beside'
  $ hg merge -q -r 'first(desc("a tag"))'
  $ as bob staff
  $ commit 'merged'
  $ push -f
  remote: added 2 changesets with 1 changes to 1 files (+1 heads)

Nor does a merge bring a tag back to where it was, by the file of the side that had not moved it.

  $ hg update -q -C default
  $ as alice staff,release
  $ tags "$(hg log -r 'desc(stable)' -T '{node}') v1\n"
  remote: added 1 changesets with 1 changes to 1 files
  $ hg log -r v1 -T '{desc}\n'
  stable
  $ moved=$(hg log -r . -T '{node}')
  $ hg update -q -C -r .^
  $ echo x > x
  $ commit 'from before'
  $ hg merge -q -r $moved
  $ hg revert -q -r 'desc("from before")' .hgtags
  $ as bob staff
  $ commit 'a merge that takes the tag back'
  $ push
  remote: - rules: d03cc9592e0d changes the tag v1, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg log -R "$TESTTMP/server" -r v1 -T '{desc}\n'
  stable
