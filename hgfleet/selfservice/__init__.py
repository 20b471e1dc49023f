"""The self-service: commands of people, `ssh hg@HOST COMMAND`.

argv                 a line, split into arguments (pure)
command              commands and the call that an argv makes of one (pure)
commands             the table of all commands, and `help`
person_commands      `whoami`, `keys`, the greeting
repository_commands  `repo ...`
token_commands       `token ...`
rules                who may create what, where, for whom to read (pure)
repositories         repositories of a person on disk and in the dynamic registry
creation             new repositories and forks
address              the address of the service in messages (pure)
deletion             archived repositories, deleted for good
renaming             another path for a repository
context              the session that every command gets
repo_cli             `hgfleet repo`, for operators

The shell imports this package only for sessions that are not hg's.
"""
