Rules of tags hold for the tags that all heads of a repository give together, not only for the lines that a changeset brings.

  $ . $TESTDIR/policies.sh
  $ as alice staff,release
  $ drafts() { registered 'rules = [{"tags": ["v*"], "push": ["release"]}]' '[phases]' 'publish = no' '[experimental]' 'evolution = exchange, createmarkers, allowunstable'; }
  $ printf '%s\n' '[experimental]' 'evolution = all' >> $HGRCPATH
  $ drafts
  $ hg clone -q ssh://host/server work
  $ cd work
  $ gives() { hg log -R $TESTTMP/server -r "$1" -T '{desc}\n'; }
  $ back() { hg strip -q --no-backup -r "$@"; }
  $ node() { hg log --hidden -r "$1" -T '{node}'; }
  $ echo 1 > file
  $ commit root
  $ echo 2 > file
  $ commit two
  $ printf '%s v1\n' $(node 'desc(root)') > .hgtags
  $ commit 'v1 is root'
  $ echo 3 > file
  $ commit 'before'
  $ printf '%s v1\n' $(node 'desc(two)') > .hgtags
  $ commit 'v1 is two'
  $ push
  remote: added 5 changesets with 5 changes to 2 files
  $ gives v1
  two

A new head from before the replacement still has the line of a former changeset. The line of the newest head would count.

  $ as bob staff
  $ hg update -q -C 'desc(before)'
  $ echo aside > aside
  $ commit aside
  $ push -f
  remote: - rules: the tag v1 would give ed4852be6872 instead of a8f74e23bec3, because other heads would be left, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ gives v1
  two
  $ back .

A marker hides the changeset that has moved the tag.

  $ marked() { hg debugobsolete -q --record-parents $(node "$1"); push; hg debugobsolete --delete 0; }
  $ marked 'desc("v1 is two")'
  no changes found
  remote: - rules: aab7ee1e0e21 changes the tag v1, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  deleted 1 obsolescence markers
  $ gives v1
  two

A refused push leaves nothing in the caches of tags. The next push may have another changeset at the same revision.

  $ caches() { (cd $TESTTMP/server/.hg/cache; md5sum *tags*; hg -R ../.. debugtagscache); }
  $ caches > $TESTTMP/before
  $ hg update -q -C 'desc(before)'
  $ printf '%s v1\n' $(node 'desc(before)') > .hgtags
  $ commit 'refused'
  $ push -f
  remote: - rules: c2e7468cdbe8 changes the tag v1, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ back .
  $ caches | diff $TESTTMP/before -

A hidden changeset with another line is shown again by a child, in which the line is none of the child's.

  $ as alice staff,release
  $ hg update -q -C 'desc("v1 is two")'
  $ printf '%s v1\n' $(node 'desc(before)') > .hgtags
  $ commit 'v1 is before'
  $ push
  remote: added 1 changesets with 1 changes to 1 files
  $ server() { HGRCPATH=$TESTTMP/server.rc hg -R $TESTTMP/server --config experimental.evolution=all "$@"; }
  $ server debugobsolete -q -u alice -d '0 0' $(node .)
  $ gives v1
  two
  $ as bob staff
  $ echo 4 > file
  $ commit 'a child'
  $ push
  remote: - rules: 6d0482d61653 changes the tag v1, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ gives v1
  two
  $ back '.^'

A branch of another name has the line too, and so has a file that was renamed to .hgtags, or a link.

  $ hg update -q -C 'desc("v1 is two")'
  $ hg branch -q other
  $ printf '%s v2\n' $(node 'desc(root)') >> .hgtags
  $ commit 'v2'
  $ push --new-branch
  remote: - rules: 07df97c8471a changes the tag v2, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ back .
  $ hg update -q -C 'desc("v1 is two")'
  $ (cat .hgtags; printf '%s v2\n' $(node 'desc(root)')) > list
  $ commit 'a list'
  $ push
  remote: added 1 changesets with 1 changes to 1 files (+1 heads)
  $ hg mv -q --force list .hgtags
  $ commit 'renamed'
  $ push
  remote: - rules: 0c3cbec906f9 changes the tag v2, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ back .
  $ hg update -q -C 'desc("a list")'
  $ rm -f .hgtags
  $ ln -s "$(cat list)" .hgtags
  $ commit 'a link'
  $ push
  remote: - rules: a491b36e02b7 changes the tag v2, where only members of release may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ back .
  $ gives v2
  abort: unknown revision 'v2'
  [255]

Tags of a subrepository or of a folder do not count, and a file of another case does not either. Local tags are not pushed.

  $ hg update -q -C 'desc("a list")'
  $ mkdir sub
  $ cp list sub/.hgtags
  $ cp list .HGTAGS
  $ hg tag -l -r 0 v3
  $ commit 'other files'
  $ push
  remote: added 1 changesets with 2 changes to 2 files
  $ hg tags -R ../server -T '{tag}\n'
  tip
  v1

A branch or bookmark with the name of a tag is refused, like a tag with the name of a branch.

  $ registered '[experimental]' 'evolution = exchange, createmarkers'
  $ hg branch -q v1
  $ echo 5 > file
  $ commit 'a branch'
  $ push --new-branch
  remote: - names: 7ac095a9ed61 is on the branch v1, which has the name of a tag: commit it on another branch (hg branch, then hg commit --amend)
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ back .
  $ hg update -q -C 'desc("other files")'
  $ hg bookmark -q -f v1
  $ push -B v1
  no changes found
  remote: - names: the bookmark v1 has the name of a tag: choose another name
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg bookmark -q -d v1

A name may not be the beginning of a hash, because programs would take it for the hash.

  $ short=$(hg log -r 0 -T '{short(node)}')
  $ bookmark() { hg debugpushkey ssh://host/server bookmarks "$1" '' $(node .) 2>&1 | grep names:; }
  $ bookmark $short
  remote: - names: the bookmark ed4852be6872 has a name that reads as a hash: choose another name
  $ bookmark x$short
  remote: - names: the bookmark xed4852be6872 has a name that reads as a hash: choose another name
  $ bookmark $(hg log -r 0 -T '{shortest(node, 5)}')
  remote: - names: the bookmark ed485 has the name of the beginning of a changeset's hash: choose another name
  $ bookmark $(hg log -r 0 -T '{shortest(node, 5)}' | tr a-f A-F)
  remote: - names: the bookmark ED485 has the name of the beginning of a changeset's hash: choose another name
  $ bookmark 123456789abc
  remote: - names: the bookmark 123456789abc has a name that reads as a hash: choose another name
  $ bookmark face
  [1]
  $ hg bookmarks -R ../server
     face                      7:4f5e145f82df
  $ printf '%s %s\n' $(node 0) $short > .hgtags
  $ commit 'a short hash'
  $ push -f
  remote: - names: d6c73b58d8e5 sets the tag ed4852be6872, which has a name that reads as a hash: choose another name (hg strip the tag's changeset, then hg tag)
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg verify -q -R ../server
