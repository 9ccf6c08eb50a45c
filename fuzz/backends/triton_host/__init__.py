"""Answers what launchers and Triton ask of the machine that they run on."""
