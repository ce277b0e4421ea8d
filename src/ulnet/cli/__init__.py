"""The commands: thin, they parse words, call the rooms below, and print."""
