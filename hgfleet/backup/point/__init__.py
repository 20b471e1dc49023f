"""Recovery points: the committed state of a repository, captured while pushes run."""
