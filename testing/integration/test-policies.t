The extension `policies` refuses changesets that a repository's policies do not allow.

  $ . $TESTDIR/policies.sh
  $ as alice staff

Without policies nothing is checked, and nothing is logged.

  $ working
  $ echo one > file
  $ commit one
  $ push
  remote: added 1 changesets with 1 changes to 1 files
  $ cat ../server/.hg/blackbox.log
  cat: ../server/.hg/blackbox.log: No such file or directory
  [1]

A commit message has to fit the pattern. The hint says how, in words; without a hint the pattern itself is shown.

  $ registered 'policies = {"commit-message": {"pattern": "^Bug [0-9]+: ", "hint": "begin it with \"Bug NUMBER: \""}}'
  $ echo two > file
  $ commit 'fix it'
  $ push
  remote: - commit-message: b2065647d3e8 has the message "fix it": begin it with "Bug NUMBER: "; change it with hg commit --amend or hg histedit
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ registered 'policies = {"commit-message": {"pattern": "^Bug [0-9]+: "}}'
  $ push
  remote: - commit-message: b2065647d3e8 has the message "fix it": expected the pattern ^Bug [0-9]+: ; change it with hg commit --amend or hg histedit
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg commit -q --amend -m 'Bug 12: fix it'
  $ push
  remote: added 1 changesets with 1 changes to 1 files

The log of the host has a line for each push, with the seconds that each policy took.

  $ sed 's/.*> //' ../server/.hg/blackbox.log
  event=policy user=alice repository=team/tool decision=refuse changesets=1 problems=1 policies=metadata:*,commit-message:* seconds=* (glob)
  event=policy user=alice repository=team/tool decision=refuse changesets=1 problems=1 policies=metadata:*,commit-message:* seconds=* (glob)
  event=policy user=alice repository=team/tool decision=allow changesets=1 problems=0 policies=metadata:*,commit-message:* seconds=* (glob)

An author has to fit a pattern as well.

  $ registered 'policies = {"author": {"pattern": "^[^<>]+ <[^@<>]+@example\\.org>$", "hint": "NAME <MAIL@example.org>"}}'
  $ echo three > file
  $ commit three
  $ push
  remote: - author: 58c01ed6aba2 has the author "test": NAME <MAIL@example.org>; set ui.username and use hg commit --amend --user
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg commit -q --amend -u 'Alice <alice@example.org>' -m three
  $ push
  remote: added 1 changesets with 1 changes to 1 files

Every policy is evaluated, and all problems are named at once: ten at most, with some of each policy among them.

  $ registered 'policies = {"commit-message": {"pattern": "Bug"}, "no-symlinks": {}}'
  $ for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $i > count; ln -sf /$i link; commit "number $i"; done
  $ push
  remote: - commit-message: cd31045a2eaa has the message "number 1": expected the pattern Bug; change it with hg commit --amend or hg histedit
  remote: - commit-message: 8f11c0801941 has the message "number 2": expected the pattern Bug; change it with hg commit --amend or hg histedit
  remote: - commit-message: 8e56d9079d3a has the message "number 3": expected the pattern Bug; change it with hg commit --amend or hg histedit
  remote: - commit-message: c0499a64b0b5 has the message "number 4": expected the pattern Bug; change it with hg commit --amend or hg histedit
  remote: - commit-message: f69868581fa5 has the message "number 5": expected the pattern Bug; change it with hg commit --amend or hg histedit
  remote: - no-symlinks: cd31045a2eaa has link, a symbolic link: replace it by a file (hg commit --amend)
  remote: - no-symlinks: 8f11c0801941 has link, a symbolic link: replace it by a file (hg commit --amend)
  remote: - no-symlinks: 8e56d9079d3a has link, a symbolic link: replace it by a file (hg commit --amend)
  remote: - no-symlinks: c0499a64b0b5 has link, a symbolic link: replace it by a file (hg commit --amend)
  remote: - no-symlinks: f69868581fa5 has link, a symbolic link: replace it by a file (hg commit --amend)
  remote: - and 14 more
  remote: alice may not push this to team/tool: 24 problems, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg push -q
  remote: alice may not push this to team/tool: 24 problems, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]

An operator is not checked, and the log says so.

  $ as operator:root ''
  $ push
  remote: added 12 changesets with 24 changes to 2 files
  $ grep -o 'event=policy user=operator.*' ../server/.hg/blackbox.log
  event=policy user=operator:root repository=team/tool decision=bypass seconds=* (glob)

A policy that this hg does not know cannot be checked, and a policy that fails lets nothing through. The person reads no traceback; the operators have it.

  $ as alice staff
  $ echo next > count
  $ commit next
  $ registered 'policies = {"no-such-policy": {}}'
  $ push
  remote: alice may not push this to team/tool: its policies could not be checked, and nothing was changed; the operators can see why in their log
  abort: push failed on remote
  [255]
  $ registered 'policies = {"file-size": {"max": "many"}}'
  $ push
  remote: alice may not push this to team/tool: its policies could not be checked, and nothing was changed; the operators can see why in their log
  abort: push failed on remote
  [255]
  $ registered 'policies = {"file-size": {"maximum": 1}}'
  $ push
  remote: alice may not push this to team/tool: its policies could not be checked, and nothing was changed; the operators can see why in their log
  abort: push failed on remote
  [255]
  $ registered 'policies = {'
  $ push
  remote: alice may not push this to team/tool: its policies could not be checked, and nothing was changed; the operators can see why in their log
  abort: push failed on remote
  [255]
  $ registered 'rules = [{"branches": ["x"]}]'
  $ push
  remote: alice may not push this to team/tool: its policies could not be checked, and nothing was changed; the operators can see why in their log
  abort: push failed on remote
  [255]
  $ grep -c 'decision=fail .*Error' ../server/.hg/blackbox.log
  5

No configuration disables the check.

  $ registered 'policies = {"no-symlinks": {}}' '[hooks]' 'pretxnclose.policies ='
  $ ln -sf /y link
  $ commit link
  $ push
  remote: - no-symlinks: bfdb52001f09 has link, a symbolic link: replace it by a file (hg commit --amend)
  remote: alice may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]

The server is whole after all of this.

  $ hg verify -q -R ../server
