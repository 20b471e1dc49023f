Metadata of changesets that hg cannot read back is refused in every repository, with and without policies.

  $ . $TESTDIR/policies.sh
  $ hostile
  $ echo 1 > file
  $ commit root
  $ push
  remote: added 1 changesets with 1 changes to 1 files
  $ forged() {
  >   hg forgetext "$@"
  >   push --new-branch 2>&1 | sed -e 's/: write .*//' -e '/^abort/d'
  >   hg --config extensions.strip= strip -q -r tip --no-backup
  > }

A date without a number, and numbers that are no date.

  $ forged mallory ''
  remote: - metadata: b77e51e94589 has the date "", expected seconds since 1970 in 32 bits and the zone's seconds within a day
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  $ forged mallory '0'
  remote: - metadata: 4700757a0904 has the date "0", expected seconds since 1970 in 32 bits and the zone's seconds within a day
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  $ forged mallory 'nan 0'
  remote: - metadata: 79db7664e59d has the date "nan 0", expected seconds since 1970 in 32 bits and the zone's seconds within a day
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  $ forged mallory 'inf 0'
  remote: - metadata: 03712b8bcef5 has the date "inf 0", expected seconds since 1970 in 32 bits and the zone's seconds within a day
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  $ forged mallory '2147483648 0'
  remote: - metadata: fee57040aabe has the date "2147483648 0", expected seconds since 1970 in 32 bits and the zone's seconds within a day
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  $ forged mallory '0 86400'
  remote: - metadata: 9e5cd459f752 has the date "0 86400", expected seconds since 1970 in 32 bits and the zone's seconds within a day
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed

A user, an extra field that core would read while the changeset arrives.

  $ forged '' '0 0'
  remote: - metadata: 3d69ddf7bfea has an empty user
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  $ forged 'a\rb' '0 0'
  remote: - metadata: 33241225d4a9 has a control character in the user "a\x0db"
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  $ forged mallory '0 0 garbage'
  remote: - metadata: 1951bd414bd7 has an extra field that cannot be decoded
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed

All problems of a changeset are named, with the way out.

  $ hg forgetext '' 'nan 0'
  $ push
  remote: - metadata: 531bb927979d has an empty user: write the changeset again with hg commit --amend --user
  remote: - metadata: 531bb927979d has the date "nan 0", expected seconds since 1970 in 32 bits and the zone's seconds within a day: write the changeset again with hg commit --amend --date, or ask an operator to admit an old history
  remote: mallory may not push this to team/tool: 2 problems, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r tip --no-backup

A branch that looks like a revision is refused where it begins, and may go on where it is.

  $ hg forgebranch 12
  $ push --new-branch
  remote: - names: f53ebd82a389 is on the branch 12, which has a name that means something else to hg: commit it on another branch (hg branch, then hg commit --amend)
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ as operator:root ''
  $ push --new-branch
  remote: added 1 changesets with 0 changes to 0 files
  $ as mallory staff
  $ hg forgebranch 12
  $ push
  remote: added 1 changesets with 0 changes to 0 files
  $ hg forgebranch 0123456789012345678901234567890123456789
  $ push --new-branch
  remote: - names: c59e32076c1e is on the branch 0123456789012345678901234567890123456789, which has a name that means something else to hg: commit it on another branch (hg branch, then hg commit --amend)
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  abort: push failed on remote
  [255]
  $ hg strip -q -r tip --no-backup

An operator admits a history with malformed dates. Nothing else about it is passed over.

  $ registered 'accept-dates = any'
  $ hg forgetext mallory 'nan 0'
  $ push
  remote: added 1 changesets with 0 changes to 0 files
  $ forged '' 'nan 0'
  remote: - metadata: b13e051701b3 has an empty user
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed
  $ forged mallory '0 0 garbage'
  remote: - metadata: 953187583c0f has an extra field that cannot be decoded
  remote: mallory may not push this to team/tool: a problem, named above (unless --quiet); nothing was changed

The admitted history is shown, searched and verified: 1970-01-01 stands for each malformed date.

  $ server() { HGRCPATH=$TESTTMP/server.rc hg -R ../server --config extensions.any_date=$TOP/hgext/any_date.py "$@"; }
  $ server log -T '{rev} {date|isodate} {branch}\n'
  3 1970-01-01 00:00 +0000 default
  2 1970-01-01 00:00 +0000 12
  1 1970-01-01 00:00 +0000 12
  0 1970-01-01 00:00 +0000 default
  $ server log -r 'date("<2000-01-01")' -T '{rev}\n'
  0
  1
  2
  3
  $ server log -r tip -T json | grep date
    "date": [0, 0],
  $ server verify -q

An old history needs no such step, nor do dates before 1970.

  $ registered
  $ hg forgetext -- 'J\xf6rg' '-315619200 25200 branch:old one\0source:abc'
  $ hg log -r tip -T '{date|isodate} {branch} {extras % "{key} "}\n'
  1959-12-31 17:00 -0700 old one branch source 
  $ push --new-branch
  remote: added 1 changesets with 0 changes to 0 files
