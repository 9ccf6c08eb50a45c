"""`fuzz judge`: a verdict on a kernel in a format that people use, with nothing written for it (docs/judge.md)."""
