"""The engine `atheris`: libFuzzer chooses plans by the coverage of the launcher."""
