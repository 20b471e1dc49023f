Names that break a file or leave its folder are refused in every repository, with and without policies.

  $ . $TESTDIR/policies.sh
  $ hostile
  $ echo 1 > file
  $ commit root
  $ push
  remote: added 1 changesets with 1 changes to 1 files
  $ tip=$(hg log -r tip -T '{node}')
  $ pushkey() { hg debugpushkey ssh://host/server bookmarks "$@" 2>&1 | grep -e '- names:' -e '^True' -e '^False'; }

A newline in a bookmark's name would be a second line in the file of all bookmarks, and so move another bookmark.

  $ hg bookmark release
  $ push -B release
  no changes found
  exporting bookmark release
  [1]
  $ pushkey "$(printf 'new\n%s release' 0123456789012345678901234567890123456789)" '' $tip
  remote: - names: the bookmark new\x0a0123456789012345678901234567890123456789 release has a control character in its name: choose another name
  $ sed 's/^[0-9a-f]* //' ../server/.hg/bookmarks
  release

Other names that hg's own client does not give are refused as well.

  $ pushkey '' '' $tip
  remote: - names: the bookmark  has an empty name: choose another name
  $ pushkey ' blank' '' $tip
  remote: - names: the bookmark  blank has a name that begins or ends with a blank: choose another name
  $ pushkey "$(printf 'x\r')" '' $tip
  remote: - names: the bookmark x\x0d has a control character in its name: choose another name
  $ pushkey "$(printf '%0300d' 0)" '' $tip | sed 's/bookmark 0*\.*0*/bookmark N/'
  remote: - names: the bookmark N has a name of 300 bytes, more than 255: choose another name
  $ pushkey tip '' $tip
  remote: - names: the bookmark tip has a name that means something else to hg: choose another name
  $ pushkey 1:2 '' $tip
  remote: - names: the bookmark 1:2 has a colon in its name, which means a range of changesets: choose another name
  $ pushkey größe '' $tip
  True
  $ sed 's/^[0-9a-f]* //' ../server/.hg/bookmarks
  größe
  release

A bookmark from before the check may be deleted.

  $ printf '%s \x01old\n' $tip >> ../server/.hg/bookmarks
  $ pushkey "$(printf '\x01old')" $tip ''
  True
  $ sed 's/^[0-9a-f]* //' ../server/.hg/bookmarks
  größe
  release

Paths that leave the working copy, or enter the folder of a repository.

  $ hg forgepath ../../../../tmp/x /abs .hg/hgrc a/.HG/hgrc .HG./x 'HG8B6C~1/hgrc' a//b ./x a/./b 'C:/x' 'a\..\..\x' 'b/.hg /hgrc' '.hg::$INDEX_ALLOCATION/x'
  $ push 2>&1 | grep -c '^remote: - names'
  10
  $ push 2>&1 | tail -6
  remote: - names: 8b5a85c58761 has HG8B6C~1/hgrc, a path that leaves the working copy or enters a repository's own folder: take it out of the history (hg rename or hg forget, then hg commit --amend)
  remote: - names: 8b5a85c58761 has a/./b, a path with an empty segment or a single dot: take it out of the history (hg rename or hg forget, then hg commit --amend)
  remote: - names: 8b5a85c58761 has a/.HG/hgrc, a path that leaves the working copy or enters a repository's own folder: take it out of the history (hg rename or hg forget, then hg commit --amend)
  remote: - and 3 more
  remote: mallory may not push this to team/tool: 13 problems, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  $ hg log -R ../server -T '{desc}\n'
  root

A later changeset without them does not help: they stay in the history. With policies the answer is the same.

  $ registered 'policies = {"no-symlinks": {}}'
  $ push 2>&1 | tail -2
  remote: mallory may not push this to team/tool: 13 problems, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  $ hg strip -q -r tip --no-backup
  $ registered

Names that only look like these are fine.

  $ hg forgepath ..x .hgignore a/.hgx 'x..' 'back\slash' '~1'
  $ push
  remote: added 1 changesets with 6 changes to 6 files

Branches.

  $ hg forgebranch 'new\nline'
  $ push --new-branch 2>&1 | grep names
  remote: - names: 0fb65b46ac57 is on the branch new\x0aline, which has a control character in its name: commit it on another branch (hg branch, then hg commit --amend)
  $ hg strip -q -r tip --no-backup
  $ hg forgebranch '\xff'
  $ push --new-branch 2>&1 | grep names
  remote: - names: 8b8b678ecedd is on the branch ÿ, which has a name that is not UTF-8: commit it on another branch (hg branch, then hg commit --amend)
  $ hg strip -q -r tip --no-backup

An operator may, as with policies: that is how a repository is repaired.

  $ as operator:root ''
  $ hg forgepath a/.hg/x
  $ push
  remote: added 1 changesets with 1 changes to 1 files

The server is whole after all of this.

  $ hg verify -q -R ../server
