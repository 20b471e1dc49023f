"""The self-service: commands of people, `ssh hg@HOST COMMAND`.

argv                 a line, split into arguments (pure)
command              commands, and the parsing of an argv into a call (pure)
commands             the table of all commands, and `help`
person_commands      `whoami`, `keys`, the greeting
repository_commands  `repo ...`
token_commands       `token ...`
rules                where a person may create a repository, and who may read it (pure)
repositories         repositories of a person on disk and in the dynamic registry
creation             new repositories and forks
address              the address of the service in messages (pure)
deletion             archived repositories, deleted for good
renaming             another path for a repository
context              the session that every command gets
repo_cli             `hgfleet repo`, for operators

The shell imports this package only for sessions that are not hg's.
"""
