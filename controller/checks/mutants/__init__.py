"""Mutation test of the decisions: each changed decision should be noticed by a unit test.

| module | what it does |
| --- | --- |
| `mutations` | the mutations of a source text |
| `choosing` | the mutants of a run, the unit tests of each, the name of a result |
| `explained` | survivors that stay, each with a reason (`explained.toml`) |
| `sandbox` | a copy of the checkout; nothing else can be written |
| `trying` | the tests of a mutant, in a fork of a process that has pytest loaded |
| `__main__` | the command |
"""
