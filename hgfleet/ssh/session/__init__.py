"""The access shell: the decision about a command, the folder that it means, the counts."""
