"""Plugin: pytest collects target files and corpus entries, where ``--fuzz-cases N`` asks for it."""
