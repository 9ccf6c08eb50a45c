"""What launchers and Triton ask of the machine they run on, and what the backends answer."""
