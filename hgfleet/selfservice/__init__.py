"""What people can do by themselves with `ssh hg@HOST COMMAND`.

`argv` turns a line into a call of one command or refuses it, `commands` is the table of all
commands with their help, `rules` decides who may create what where, `repositories` changes what is
on disk and in the dynamic registry. The shell imports this package only for sessions that are not
hg's.
"""
