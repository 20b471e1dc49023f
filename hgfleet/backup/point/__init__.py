"""Recovery points: the committed state of a repository, taken beside running pushes."""
