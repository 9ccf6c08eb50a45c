"""What can be proved of a kernel before its C is written."""
