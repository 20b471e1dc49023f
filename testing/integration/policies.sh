#!/usr/bin/env bash
# Shared by the stories about policies: a server with its extensions, and people who push to it.
# Sourced by a .t file: . $TESTDIR/policies.sh

cat > "$TESTTMP/server.rc" <<EOF
[extensions]
access = $TOP/hgext/access.py
access:required = yes
policies = $TOP/hgext/policies.py
policies:required = yes
blackbox =
[blackbox]
track = hgfleet_policy
[server]
validate = true
bundle1 = false
[push]
pushvars.server = true
EOF
hg init "$TESTTMP/server"

# The command that sshd runs for a session, with the person in the environment.
printf '#!/bin/sh\nHGRCPATH=%s exec hg -R %s serve --stdio\n' \
    "$TESTTMP/server.rc" "$TESTTMP/server" > "$TESTTMP/session"
chmod +x "$TESTTMP/session"
cat >> "$HGRCPATH" <<EOF
[ui]
ssh = $TESTTMP/session
editor = false
[extensions]
rebase =
strip =
EOF

# registered LINE...: the generated hgrc of the server's repository, with these lines after access.
registered() {
    printf '%s\n' '[hgfleet]' 'path = team/tool' 'read = public' 'push = staff' "$@" \
        > "$TESTTMP/server/.hg/hgrc"
}

# as PERSON GROUPS: who pushes from here on.
as() { HGFLEET_USER=$1 HGFLEET_GROUPS=$2; export HGFLEET_USER HGFLEET_GROUPS; }

# working LINE...: a clone of the server's repository, which is registered with these lines.
working() {
    registered "$@"
    hg clone -q ssh://host/server work
    cd work || return
}

# branched: a first push of two changesets: src/main and secrets/key, then the branch stable.
branched() {
    mkdir src secrets
    echo 1 > src/main
    echo 1 > secrets/key
    commit root
    hg branch -q stable
    echo 1 > version
    commit stable
    push --new-branch
}

# hostile LINE...: mallory works in a clone with the commands of a client that does not keep to what hg's
# own do; the server's repository is registered with these lines.
hostile() {
    printf '%s\n' '[extensions]' "hostile = $TESTDIR/hostile_client.py" >> "$HGRCPATH"
    as mallory staff
    working "$@"
}

# push [OPTION...]: the server's messages about a push, without the messages that are always the same.
push() {
    hg push "$@" 2>&1 | grep -v -e '^pushing to' -e '^searching for' -e '^remote: adding' \
        -e 'hook failed: write refused$' -e 'transaction abort!$' -e 'rollback completed$'
    return "${PIPESTATUS[0]}"
}

# commit MESSAGE [OPTION...]: everything in the working copy.
commit() { hg commit -qAm "$@"; }

# served: the content of a clone.
served() { hg log -R "$TESTTMP/server" -r "not secret()" -T '{branch}: {desc|firstline}{if(closesbranch, " (closes)")}\n'; }
