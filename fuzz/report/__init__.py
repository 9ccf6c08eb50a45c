"""What a person or a script reads: one screen, live progress, JSON, files for continuous integration, a program."""
