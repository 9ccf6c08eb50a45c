"""What each operation of TTIR becomes in C."""
