Policies and clients that do things that hg's own clients do not do.

  $ . $TESTDIR/policies.sh
  $ hostile
  $ for name in a b l; do echo same > $name; done
  $ echo other > c
  $ commit 'four files'
  $ push
  remote: added 1 changesets with 4 changes to 4 files

A changeset has a list of its files, and nothing makes the list true. This changeset makes a link of b, and names only c.

  $ registered 'policies = {"no-symlinks": {}}' 'rules = [{"paths": ["b"], "push": ["security"]}]'
  $ hg forge b c a
  $ hg log -r tip -T '{files}\n'
  c
  $ push
  remote: - no-symlinks: eea035a17ae4 has b, a symbolic link: replace it by a file (hg commit --amend)
  remote: - rules: eea035a17ae4 changes b, where only members of security may push; ask one of them
  remote: mallory may not push this to team/tool: 2 problems, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]

The same with a difference of manifests in pieces that are no lines: the letter "l" for b and a new node for c. Put together they look like a line of the file l, and core takes them for such a line.

  $ push --config hostile.pieces=yes
  remote: - no-symlinks: eea035a17ae4 has b, a symbolic link: replace it by a file (hg commit --amend)
  remote: - rules: eea035a17ae4 changes b, where only members of security may push; ask one of them
  remote: mallory may not push this to team/tool: 2 problems, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]

Without a policy the link is stored, and visible. An operator removes it.

  $ registered
  $ push --config hostile.pieces=yes
  remote: added 1 changesets with 1 changes to 1 files
  $ hg -R ../server manifest -v -r tip
  644   a
  644 @ b
  644   c
  644   l
  $ as operator:root ''
  $ HGRCPATH=$TESTTMP/server.rc hg -R ../server --config extensions.strip= strip -q -r tip --no-backup
  $ as mallory staff

No byte of a name or a message is written raw to a terminal or to the log.

  $ registered 'policies = {"paths": {"forbidden": ["*.exe"], "max-length": 10}, "commit-message": {"pattern": "^Bug"}, "author": {"pattern": "^[a-z ]+<"}}'
  $ hg forgebytes 1
  $ push
  remote: - commit-message: eea035a17ae4 has the message "nothing to see": expected the pattern ^Bug; change it with hg commit --amend or hg histedit
  remote: - commit-message: db96a7bc8b6b has the message "\x1b[2Jÿ first line\x0dremote: all is well": expected the pattern ^Bug; change it with hg commit --amend or hg histedit
  remote: - author: eea035a17ae4 has the author "mallory": expected the pattern ^[a-z ]+<; set ui.username and use hg commit --amend --user
  remote: - author: db96a7bc8b6b has the author "Rootÿ <a@b>": expected the pattern ^[a-z ]+<; set ui.username and use hg commit --amend --user
  remote: - paths: db96a7bc8b6b has a\x1b]0;owned\x07\xff\xfe0.exe, a path of 18 bytes, more than 10: rename it (hg rename, then fold with hg histedit)
  remote: mallory may not push this to team/tool: 5 problems, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg push -f 2>&1 | tr -d '[:print:]\n' | od -c
  0000000 303 277 303 277
  0000004
  $ sed 's/.*> //' ../server/.hg/blackbox.log | tail -1 | tr -d '[:print:]\n' | od -c
  0000000

Of a thousand problems, some are named and the rest are counted.

  $ hg forgebytes 1200
  $ push 2>&1 | sed 's/^\(remote: - [a-z-]*\): .*/\1/'
  remote: - commit-message
  remote: - commit-message
  remote: - commit-message
  remote: - commit-message
  remote: - author
  remote: - author
  remote: - author
  remote: - paths
  remote: - paths
  remote: - paths
  remote: - and 2990 more
  remote: mallory may not push this to team/tool: 3000 problems, named above (unless --quiet); nothing was changed
  abort: push failed on remote

A message that is made to keep the server busy is refused after a second.

  $ registered 'policies = {"commit-message": {"pattern": "^(a+)+$"}}'
  $ hg strip -q -r '1' --no-backup --config extensions.hostile=!
  $ echo more > a
  $ commit aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!
  $ push
  remote: - commit-message: ba9628733a03 has the message "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", and comparing it with the pattern takes too long: write it more simply, and tell an operator
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]

A reason that is too long for a reply does not break the reply: it is cut there, and is complete in the lines above.

  $ long=$(printf 'because %.0s' $(seq 24))
  $ registered "read-only = $long"
  $ hg push
  pushing to ssh://host/server
  searching for changes
  abort: unexpected remote reply: mallory may not push to team/tool now: it is read-only (because because because because because because because because because because because because because because because because because because because because because because because because); nothing was changed, push again later
  [255]

The server is whole after all of this.

  $ hg verify -q -R ../server
