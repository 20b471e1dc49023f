"""The push log over HTTPS: queries, the choice of pushes, and their forms."""
