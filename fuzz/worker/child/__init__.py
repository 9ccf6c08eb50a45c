"""What runs in the processes of workers: the supervisor, the loop that answers requests, and what it restores."""
