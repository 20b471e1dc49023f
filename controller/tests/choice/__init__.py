"""The tests that a change of files needs: the graph of references, and the choice."""
