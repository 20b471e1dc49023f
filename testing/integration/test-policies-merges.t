Rules about paths, and merges.

  $ . $TESTDIR/policies.sh
  $ as alice staff,release
  $ working
  $ mkdir src secrets
  $ echo 1 > src/main
  $ echo 1 > secrets/key
  $ commit root
  $ push
  remote: added 1 changesets with 2 changes to 2 files

  $ registered 'rules = [{"paths": ["secrets"], "push": ["security"]}]'

A merge may carry changes of others to those paths. It may not choose: bob takes back a key that was changed, with a merge whose every file is the same as in a parent.

  $ as alice staff,security
  $ echo new > secrets/key
  $ commit 'a new key'
  $ push
  remote: added 1 changesets with 1 changes to 1 files
  $ as bob staff
  $ hg update -q 'desc(root)'
  $ echo aside > src/aside
  $ commit 'aside'
  $ hg merge -q 'desc("a new key")'
  $ commit 'a clean merge'
  $ push
  remote: added 2 changesets with 1 changes to 1 files
  $ hg update -q 'desc("aside")'
  $ echo b > src/b
  $ commit 'from the old one'
  $ hg debugsetparents 'desc("from the old one")' 'desc("a clean merge")'
  $ hg commit -m 'the old key is back'
  $ hg log -r tip -T 'names: {files}\n'
  names: 
  $ hg cat -r tip secrets/key
  1
  $ push
  remote: - rules: 8d5b87d6652a changes secrets/key, where only members of security may push; ask one of them
  remote: bob may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r . --no-backup

A change that a merge brings from a parent was checked when it came, or is older than the policy. It is not a change of the merge.

  $ registered
  $ hg update -qC 'desc("from the old one")'
  $ ln -s x link
  $ commit 'a link'
  $ push -f
  remote: added 2 changesets with 2 changes to 2 files (+1 heads)
  $ registered 'policies = {"no-symlinks": {}}'
  $ hg update -q 'desc("a clean merge")'
  $ hg merge -q
  $ commit 'merged with the link'
  $ push
  remote: added 1 changesets with 0 changes to 0 files (-1 heads)
  $ hg -R ../server manifest -v -r tip | grep link
  644 @ link

The server is whole after all of this.

  $ hg verify -q -R ../server
