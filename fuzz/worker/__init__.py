"""Worker: the processes in which backends run, and what is sent to them."""
